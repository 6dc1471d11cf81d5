// The latency of the last images as a line, with the level of the median.

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 90;

function part(name, attributes) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export function drawLatency(svg, seconds) {
  const content = seconds.join(" ");
  if (svg.dataset.content === content) return;
  svg.dataset.content = content;
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  if (seconds.length < 2) return svg.replaceChildren();
  const top = Math.max(...seconds) || 1;
  const x = (index) => 4 + (index * (WIDTH - 8)) / (seconds.length - 1);
  const y = (value) => HEIGHT - 6 - (value / top) * (HEIGHT - 14);
  const median = [...seconds].sort((a, b) => a - b)[Math.ceil(seconds.length / 2) - 1];
  const line = seconds.map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`);
  svg.replaceChildren(
    part("line", { x1: 0, x2: WIDTH, y1: y(median), y2: y(median) }),
    part("path", { d: line.join("") }));
}
