"use strict";
(() => {
  const root = document.documentElement;
  const table = document.getElementById("groups");
  const bodies = Array.from(table.tBodies);
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const tiles = Array.from(document.querySelectorAll(".tile"));
  const words = bodies.map((body) => body.rows[0].textContent.toLowerCase());
  let verdict = "";
  let details = null;

  root.classList.add("js");

  const numbered = (body) => Number(body.id.slice(1));

  const show = () => {
    const wanted = filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const body of bodies) {
      const text = words[numbered(body)];
      const fits = (!verdict || body.dataset.v === verdict) && wanted.every((word) => text.includes(word));
      body.hidden = !fits;
      count += fits;
    }
    const total = bodies.length.toLocaleString("en");
    shown.textContent = count === bodies.length ? `${total} groups` : `${count.toLocaleString("en")} of ${total} groups`;
    for (const tile of tiles) {
      tile.setAttribute("aria-pressed", String(tile.dataset.verdict === verdict));
    }
  };

  const inflated = (source) => {
    const bytes = Uint8Array.from(atob(source), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  };

  const part = async (body) => {
    if (body.rows.length > 1) {
      return body.rows[1];
    }
    details = details || inflated(document.getElementById("details").textContent);
    const found = await details;
    if (body.rows.length > 1) {
      return body.rows[1];
    }
    const row = body.insertRow();
    row.className = "more";
    const cell = row.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    cell.innerHTML = found[numbered(body)];
    return row;
  };

  const open = async (body, wanted) => {
    const row = await part(body);
    row.classList.toggle("open", wanted);
    const inside = row.querySelector("details");
    if (inside) {
      inside.open = row.classList.contains("open");
    }
    body.querySelector("th button").setAttribute("aria-expanded", String(row.classList.contains("open")));
  };

  const key = (body, column) => {
    const cell = body.rows[0].cells[column];
    if (!cell.classList.contains("n")) {
      return cell.textContent.toLowerCase();
    }
    return cell.dataset.k === undefined ? null : Number(cell.dataset.k);
  };

  const sort = (head) => {
    const column = head.cellIndex;
    const before = head.getAttribute("aria-sort");
    const number = head.classList.contains("n");
    const first = number && column > 0 ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = before === first ? other : first;
    for (const cell of table.tHead.rows[0].cells) {
      cell.removeAttribute("aria-sort");
    }
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = bodies.map((body) => [key(body, column), body]);
    keyed.sort(([a, x], [b, y]) => {
      // What is not known, or empty, comes last both ways.
      const without = (a === null || a === "") - (b === null || b === "");
      return without || sign * ((a > b) - (a < b)) || numbered(x) - numbered(y);
    });
    table.append(...keyed.map(([, body]) => body));
  };

  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.addEventListener("click", () => sort(head));
  }
  for (const body of bodies) {
    const name = body.rows[0].querySelector("th");
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.textContent = name.textContent;
    name.replaceChildren(button);
  }
  table.addEventListener("click", (event) => {
    const row = event.target.closest("tbody > tr:first-child");
    if (row && row.parentNode.parentNode === table && !String(getSelection())) {
      open(row.parentNode);
    }
  });
  filter.addEventListener("input", show);
  for (const tile of tiles) {
    tile.addEventListener("click", () => {
      verdict = verdict === tile.dataset.verdict ? "" : tile.dataset.verdict;
      show();
    });
  }
  for (const rule of document.querySelectorAll(".rule")) {
    rule.addEventListener("click", () => {
      filter.value = rule.dataset.rule;
      verdict = "";
      show();
      document.getElementById("all").scrollIntoView();
    });
  }
  document.getElementById("clear").addEventListener("click", () => {
    filter.value = "";
    verdict = "";
    show();
  });

  const follow = () => {
    const body = /^#g\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
    if (body) {
      filter.value = "";
      verdict = "";
      show();
      open(body, true).then(() => body.scrollIntoView());
    }
  };
  addEventListener("hashchange", follow);
  follow();
  if (bodies.length === 1) {
    open(bodies[0], true);
  }
})();
