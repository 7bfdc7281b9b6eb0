"use strict";
{
  // A table shows this many rows at a time: there can be tens of thousands.
  const pageRows = 100;

  const data = JSON.parse(document.getElementById("data").textContent);

  // Cells and their sort keys are strings, because 64-bit numbers would lose digits. With leading
  // zeros, they compare like numbers.
  const digits = s => s.padStart(24, "0");
  const split = (s, pattern) => {
    const m = pattern.exec(s);
    return m ? m[1] + "\0" + digits(m[2]) : s;
  };
  const keys = {
    number: digits,
    share: digits,
    hex: digits,
    place: s => split(s, /^(.*?)0x([0-9a-f]+)-0x[0-9a-f]+$/s),
    reason: s => data.reasons[s] ?? s,
  };
  const key = (kind, cell) => keys[kind]?.(cell) ?? cell;

  // shown formats cells for display.
  const shown = {
    number: s => /^\d+$/.test(s) ? s.replace(/\B(?=(\d{3})+$)/g, ",") : s,
    reason: s => data.reasons[s] ?? s,
  };
  const show = (kind, cell) => shown[kind]?.(cell) ?? cell;

  // element returns a new element. Text is only ever set as text: names come from hostile files.
  const element = (tag, className, text = "") => {
    const e = document.createElement(tag);
    e.className = className;
    e.textContent = text;
    return e;
  };

  // table lets a table be sorted, filtered and paged through.
  const table = root => {
    const heads = [...root.querySelectorAll("thead th")];
    const columns = heads.map(th => ({index: Number(th.dataset.column), kind: th.dataset.kind}));
    const after = columns.at(-1).index + 1; // the extra cell: the symbol of a name, or the link of a file
    const rows = data.tables[root.id].map(cells => ({cells}));
    const input = root.querySelector("input");
    const select = root.querySelector("select");
    const reason = columns.find(c => c.kind === "reason")?.index;
    let sorted = rows;
    let view = rows;
    let page = 0;

    // text returns what the filter searches: all that the row shows, and the symbol.
    const named = columns.some(c => c.kind === "name");
    const text = row => row.text ??=
      columns.map(c => show(c.kind, row.cells[c.index])).concat(named && row.cells[after] || []).join("\n").toLowerCase();

    const line = row => {
      const tr = document.createElement("tr");
      for (const {index, kind} of columns) {
        const value = show(kind, row.cells[index]);
        const cell = element(["name", "file"].includes(kind) ? "th" : "td", kind);
        if (cell.tagName === "TH") cell.scope = "row";
        const last = row.cells[after];
        if (kind === "file" && last) {
          const link = element("a", "", value);
          link.href = last;
          cell.append(link);
        } else if (kind === "reason" && value) {
          cell.classList.add("r-" + row.cells[index]);
          cell.append(element("span", "swatch"), value);
        } else {
          cell.textContent = value;
        }
        if (kind === "share") {
          const bar = element("meter", "");
          bar.max = 100;
          bar.value = parseFloat(value);
          cell.className = "number";
          cell.append(" ", bar);
        }
        if (kind === "name" && last) cell.title = last;
        tr.append(cell);
      }
      return tr;
    };

    const render = () => {
      const last = Math.max(0, Math.ceil(view.length / pageRows) - 1);
      page = Math.min(Math.max(page, 0), last);
      const begin = page * pageRows;
      const part = view.slice(begin, begin + pageRows);
      root.querySelector("tbody").replaceChildren(...part.map(line));
      const count = n => show("number", String(n));
      const counted = root.querySelector(".count"); // short tables have no filter and no count
      if (counted) counted.value = `${count(view.length)} of ${count(rows.length)} ${root.dataset.noun}`;
      const expand = root.querySelector(".expand");
      if (expand) expand.hidden = view.length <= 20;
      root.querySelector(".page").value = `${count(begin + 1)} to ${count(begin + part.length)} of ${count(view.length)}`;
      root.querySelector(".pages").hidden = last === 0;
      for (const b of root.querySelectorAll("[data-page]")) {
        b.disabled = ["first", "previous"].includes(b.dataset.page) ? page === 0 : page === last;
      }
    };

    const filter = () => {
      const words = (input?.value ?? "").toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = select?.value;
      view = sorted.filter(row => (!wanted || row.cells[reason] === wanted) && words.every(w => text(row).includes(w)));
      page = 0;
      render();
    };

    const sort = (th, {index, kind}) => {
      const direction = th.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.setAttribute("aria-sort", other === th ? direction : "none");
      const sign = direction === "ascending" ? 1 : -1;
      const keyed = rows.map(row => ({row, key: key(kind, row.cells[index])}));
      keyed.sort((a, b) => a.key < b.key ? -sign : a.key > b.key ? sign : 0);
      sorted = keyed.map(k => k.row);
      filter();
    };

    const turn = {first: () => 0, previous: () => page - 1, next: () => page + 1, last: () => Infinity};
    heads.forEach((th, i) => th.querySelector("button").addEventListener("click", () => sort(th, columns[i])));
    for (const b of root.querySelectorAll("[data-page]")) {
      b.addEventListener("click", () => {
        page = turn[b.dataset.page]();
        render();
      });
    }
    input?.addEventListener("input", filter);
    select?.addEventListener("change", filter);
    root.querySelector("form")?.addEventListener("submit", event => event.preventDefault());
    filter(); // browsers may keep the filter when a page is reloaded
  };

  // A link to a file opens its details.
  const open = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.tagName === "DETAILS") target.open = true;
  };

  document.documentElement.classList.add("live"); // shows the controls that need the script
  document.querySelectorAll(".table").forEach(table);
  addEventListener("hashchange", open);
  open();
}
