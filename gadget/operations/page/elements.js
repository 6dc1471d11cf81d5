// Small pieces that all parts of the page use. Texts become text nodes only, never markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function write(id, text) {
  const element = byId(id);
  const content = String(text ?? "–");
  if (element.textContent !== content) element.textContent = content;
}

const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

export const clock = (seconds) => new Date(1000 * seconds).toLocaleTimeString([], TIME);

export const badges = (list) =>
  list.map(([text, tone]) => make("span", { class: "badge", "data-tone": tone }, text));

// Make the children of a parent those of a list: each item has a key; unchanged ones stay as they are.
export function keep(parent, items, keyOf, build) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const after = items.map((item) => {
    const key = String(keyOf(item));
    const content = JSON.stringify(item);
    const old = before.get(key);
    if (old && old.dataset.content === content) return old;
    const element = build(item, old);
    element.dataset.key = key;
    element.dataset.content = content;
    return element;
  });
  for (const child of [...parent.children]) if (!after.includes(child)) child.remove();
  after.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] ?? null);
  });
}
