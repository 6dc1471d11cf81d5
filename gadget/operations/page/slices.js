// Cards of the last slices: the image large, beside it the posterior mean and the standard deviation.

import { badges, byId, clock, keep, make } from "./elements.js";
import { openViewer, updateViewer } from "./viewer.js";

const ON_CARD = ["latency", "prior", "weight", "outcome", "uncertainty"];

export function showSlices(slices) {
  keep(byId("slices"), slices, (slice) => slice.number, card);
  byId("no-slices").hidden = slices.length > 0;
  // Where any slice has further pictures, all leave room for them: nothing jumps when they come.
  byId("slices").classList.toggle("uncertain", slices.some((slice) => slice.pictures.length > 1));
  updateViewer(slices);
}

function card(slice, old) {
  const element = old ?? make("button", { type: "button", class: "slice" });
  element.onclick = () => openViewer(slice.number);
  element.setAttribute("aria-label", `Scan ${slice.scan}, ${slice.label}: open`);
  const known = new Map([...element.querySelectorAll("figure")].map((figure) => [figure.dataset.address, figure]));
  const figures = slice.pictures.map((picture) => known.get(picture.address) ?? figureOf(slice, picture));
  const facts = slice.facts.filter(([name]) => ON_CARD.includes(name));
  element.replaceChildren(
    make("div", { class: "pictures" }, figures[0] ?? "", make("div", { class: "stack" }, ...figures.slice(1, 3))),
    make("div", { class: "below" },
      make("div", { class: "head" }, make("b", {}, `Scan ${slice.scan}, ${slice.label}`),
        make("span", { class: "quiet" }, clock(slice.at))),
      slice.badges.length ? make("p", { class: "badges" }, ...badges(slice.badges)) : "",
      make("dl", { class: "facts" }, ...facts.flatMap(([name, value]) => [
        make("dt", {}, name), make("dd", { "data-fact": name }, value)]))));
  return element;
}

function figureOf(slice, picture) {
  const image = make("img", {
    src: picture.address, alt: `${picture.name} of ${slice.label}`, width: picture.width, height: picture.height,
  });
  image.style.aspectRatio = picture.aspect;
  image.style.height = "auto";
  const figure = make("figure", { "data-name": picture.name }, image, make("figcaption", {}, picture.name));
  figure.dataset.address = picture.address;
  return figure;
}
