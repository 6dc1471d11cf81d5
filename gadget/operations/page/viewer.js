// One slice, large: all its pictures side by side, their scales, and the values under the pointer.

import { badges, byId, make } from "./elements.js";

const HINT = "Point at a picture to read its values.";
let slices = [];
let shown = null;

export function openViewer(number) {
  shown = number;
  draw();
  if (!byId("viewer").open) byId("viewer").showModal();
}

export function updateViewer(latest) {
  slices = latest;
  if (byId("viewer").open) draw();
}

function step(by) {
  const index = slices.findIndex((slice) => slice.number === shown) + by;
  if (index >= 0 && index < slices.length) openViewer(slices[index].number);
}

function draw() {
  const slice = slices.find((one) => one.number === shown);
  if (!slice) return; // it was dropped; what is shown stays
  const content = JSON.stringify(slice);
  const viewer = byId("viewer");
  if (viewer.dataset.content === content) return;
  viewer.dataset.content = content;
  byId("viewer-title").textContent = `Scan ${slice.scan}, ${slice.label}`;
  byId("viewer-badges").replaceChildren(...badges(slice.badges));
  byId("viewer-pictures").replaceChildren(...slice.pictures.map(figureOf));
  byId("viewer-values").textContent = HINT;
  byId("viewer-facts").replaceChildren(...slice.facts.flatMap(([name, value]) => [
    make("dt", {}, name), make("dd", {}, value)]));
}

function figureOf(picture) {
  const image = make("img", {
    src: picture.address, alt: picture.name, width: picture.width, height: picture.height, draggable: "false",
  });
  image.style.aspectRatio = picture.aspect;
  image.style.height = "auto";
  const cross = make("span", { class: "cross", hidden: "" });
  const frame = make("div", { class: "frame" }, image, cross);
  frame.addEventListener("pointermove", (event) => readAt(image, event));
  frame.addEventListener("pointerdown", (event) => readAt(image, event));
  const figure = make("figure", {}, frame, make("figcaption", {},
    make("b", {}, picture.name), make("span", {}, picture.low),
    make("img", { class: "colours", src: `colours/${picture.palette}.png`, alt: "dark to bright" }),
    make("span", {}, picture.high)));
  Object.assign(figure, { picture, image, cross, levels: null });
  image.addEventListener("load", () => readLevels(figure));
  return figure;
}

// Levels 0 to 255 of each pixel: colours are looked up in the bar of the palette.
async function readLevels(figure) {
  const { width, height, palette } = figure.picture;
  const colours = new Image();
  colours.src = `colours/${palette}.png`;
  await colours.decode();
  const bar = pixelsOf(colours, 256, 1);
  const levelOf = new Map();
  for (let level = 255; level >= 0; level -= 1) levelOf.set(colourAt(bar, level), level);
  const pixels = pixelsOf(figure.image, width, height);
  figure.levels = Array.from({ length: width * height }, (_, index) => levelOf.get(colourAt(pixels, index)) ?? 0);
}

function pixelsOf(image, width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

const colourAt = (data, index) => (data[4 * index] << 16) | (data[4 * index + 1] << 8) | data[4 * index + 2];

function readAt(image, event) {
  const box = image.getBoundingClientRect();
  const [u, v] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  if (u < 0 || v < 0 || u >= 1 || v >= 1) return;
  const words = [];
  for (const figure of byId("viewer-pictures").children) {
    const { picture, levels, cross } = figure;
    cross.hidden = false;
    cross.style.left = `${100 * u}%`;
    cross.style.top = `${100 * v}%`;
    if (!levels) continue;
    const [x, y] = [Math.floor(u * picture.width), Math.floor(v * picture.height)];
    const [low, high] = [Number(picture.low), Number(picture.high)];
    const level = levels[y * picture.width + x];
    const limit = level === 255 ? "at least " : "";
    if (!words.length) words.push(`x ${x}, y ${y}`);
    words.push(`${picture.name} ${limit}${(low + ((high - low) * level) / 255).toPrecision(3)}`);
  }
  byId("viewer-values").textContent = words.join("   ·   ");
}

byId("viewer-close").addEventListener("click", () => byId("viewer").close());
byId("viewer-newer").addEventListener("click", () => step(-1));
byId("viewer-older").addEventListener("click", () => step(1));
byId("viewer-pixels").addEventListener("click", (event) => {
  const pressed = byId("viewer-pictures").classList.toggle("pixels");
  event.currentTarget.setAttribute("aria-pressed", pressed);
});
byId("viewer").addEventListener("keydown", (event) => {
  if (event.key === "ArrowLeft") step(-1);
  if (event.key === "ArrowRight") step(1);
});
byId("viewer").addEventListener("click", (event) => {
  if (event.target === byId("viewer")) byId("viewer").close();
});
