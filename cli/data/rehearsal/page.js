"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const slider = document.getElementById("at");
  const clock = document.getElementById("clock");
  const now = document.getElementById("now");
  const cursors = document.querySelectorAll(".cursor");
  const counts = document.querySelectorAll(".names .count");
  const rows = document.querySelectorAll("tr[data-at]");
  const words = { twice: "two owners", rejected: "rejected", down: "down", idle: data.unit === "none" ? "runs" : "0" };

  const text = (seconds) => {
    const whole = Math.floor(seconds + 1e-6);
    const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    const tenth = seconds < 600 ? "." + Math.floor((seconds - whole) * 10 + 1e-6) : "";
    const parts = h ? [h + " h", m + " min"] : m ? [m + " min", s + tenth + " s"] : [s + tenth + " s"];
    return parts.join(" ");
  };

  const show = (seconds) => {
    const at = Math.min(Math.max(seconds, 0), data.seconds);
    const share = data.seconds ? at / data.seconds : 0;
    const place = 1000 * share;
    slider.value = at;
    clock.textContent = text(at);
    for (const line of cursors) {
      line.setAttribute("x1", place);
      line.setAttribute("x2", place);
      line.style.visibility = "visible";
    }
    data.lanes.forEach((lane, number) => {
      const cell = lane.find(([end]) => end > data.columns * share) || lane[lane.length - 1];
      if (cell && counts[number]) {
        counts[number].textContent = words[cell[1]] || String(cell[2]);
      }
    });
    const going = data.rebalances.find(([began, ended]) => began <= at && (ended === null || at < ended));
    const last = data.notes.filter(([when]) => when <= at + 1e-6).pop();
    const said = [];
    said.push(going ? "rebalancing: " + going[4] : "at rest");
    if (last) {
      said.push("last: " + [last[1], last[2], last[3]].filter(Boolean).join(" "));
    }
    now.textContent = said.join(" · ");
    for (const row of rows) {
      row.className = Number(row.dataset.at) <= at + 1e-6 ? "past" : "to-come";
    }
  };

  const step = (direction) => {
    const at = Number(slider.value);
    const next =
      direction > 0
        ? data.marks.find((mark) => mark > at + 1e-3)
        : data.marks.filter((mark) => mark < at - 1e-3).pop();
    show(next === undefined ? (direction > 0 ? data.seconds : 0) : next);
  };

  slider.addEventListener("input", () => show(Number(slider.value)));
  document.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    if (event.key in moves) {
      for (let times = event.shiftKey ? 10 : 1; times > 0; times -= 1) {
        step(moves[event.key]);
      }
    } else if (event.key === "Home" || event.key === "End") {
      show(event.key === "Home" ? 0 : data.seconds);
    } else {
      return;
    }
    event.preventDefault();
  });
  for (const plot of document.querySelectorAll(".plot")) {
    const follow = (event) => {
      const box = plot.getBoundingClientRect();
      show((data.seconds * (event.clientX - box.left)) / box.width);
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
  }
  show(0);
})();
