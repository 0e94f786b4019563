// Elements from data, and the smallest change that makes the page show them.
//
// A page is a function from its state to elements. morph() changes the page into them in place, so that focus, selection
// and what a user types stay where they are. Text only ever becomes text nodes: nothing is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) {
      element[name] = value;
      (element.handlers ??= new Set()).add(name);
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function sameKind(old, fresh) {
  return (
    old.nodeType === fresh.nodeType &&
    old.nodeName === fresh.nodeName &&
    (old.nodeType !== Node.ELEMENT_NODE || old.getAttribute("data-key") === fresh.getAttribute("data-key"))
  );
}

function morphElement(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of old.handlers ?? []) if (!fresh.handlers?.has(name)) old[name] = null;
  for (const name of fresh.handlers ?? []) old[name] = fresh[name];
  old.handlers = fresh.handlers;
  if ((old.nodeName === "INPUT" || old.nodeName === "SELECT") && old !== document.activeElement) {
    if (old.value !== fresh.value && fresh.hasAttribute("data-controlled")) old.value = fresh.value;
    if (old.type === "checkbox") old.checked = fresh.hasAttribute("checked");
  }
  morphChildren(old, [...fresh.childNodes]);
}

// Elements with a data-key are moved, not rewritten: a list that grows at one end keeps its rows.
function morphChildren(parent, fresh) {
  const keyed = new Map();
  for (const node of parent.childNodes) {
    const key = node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
    if (key !== null) keyed.set(key, node);
  }
  let place = parent.firstChild;
  for (const node of fresh) {
    const key = node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
    const known = key === null ? undefined : keyed.get(key);
    if (known !== undefined && known !== place && sameKind(known, node)) {
      parent.insertBefore(known, place);
      place = known;
    }
    if (place !== null && sameKind(place, node)) {
      const next = place.nextSibling;
      if (place.nodeType === Node.TEXT_NODE) {
        if (place.data !== node.data) place.data = node.data;
      } else {
        morphElement(place, node);
      }
      place = next;
    } else {
      parent.insertBefore(node, place);
    }
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

export const morph = (container, ...children) =>
  morphChildren(container, [...fill(document.createElement(container.nodeName), {}, children).childNodes]);
