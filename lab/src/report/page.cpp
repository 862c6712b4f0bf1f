#include "lab/src/report/page.h"

#include "lab/src/report/grid.h"
#include "lab/src/report/svg.h"

namespace tandem::lab {
namespace {

// The ten colours of systems are those of Paul Tol's and Okabe and Ito's palettes that stay apart for colour-blind eyes.
constexpr const char* kStyle = R"css(
:root { color-scheme: light dark; --paper: #fdfdfb; --sunk: #f1f1ec; --ink: #1d1f21; --soft: #5c6166; --line: #d5d7d3;
  --good: #17693f; --bad: #a3281d; --unsure: #7a5b00; --link: #0b5cad;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #cc79a7; --c4: #b8860b; --c5: #3f8fbf; --c6: #7b4ea3; --c7: #8c564b;
  --c8: #4d4d4d; --c9: #a6761d; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { --paper: #16181a; --sunk: #212427; --ink: #e8e8e4; --soft: #a3a8ad;
  --line: #3a3f44; --good: #6fd39b; --bad: #ff9184; --unsure: #e8c25a; --link: #7db8f0; --c0: #4aa8e0; --c1: #f08a45; --c2: #3ccf9f;
  --c3: #e3a1c6; --c4: #e0b84c; --c5: #8cc8ee; --c6: #b791dc; --c7: #c89b8f; --c8: #b5b5b5; --c9: #d8b36a; } }
:root[data-theme=dark] { color-scheme: dark; --paper: #16181a; --sunk: #212427; --ink: #e8e8e4; --soft: #a3a8ad;
  --line: #3a3f44; --good: #6fd39b; --bad: #ff9184; --unsure: #e8c25a; --link: #7db8f0; --c0: #4aa8e0; --c1: #f08a45; --c2: #3ccf9f;
  --c3: #e3a1c6; --c4: #e0b84c; --c5: #8cc8ee; --c6: #b791dc; --c7: #c89b8f; --c8: #b5b5b5; --c9: #d8b36a; }
:root[data-theme=light] { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 80rem; padding: 1.2rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .2rem 0; } h2 { font-size: 1.3rem; margin: 2.2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; } p { margin: .5rem 0; } .soft { color: var(--soft); } a { color: var(--link); }
p, ul, nav, pre, .warning { max-width: 62rem; }
.answers { background: var(--sunk); border-left: 4px solid var(--c0); padding: .6rem 1rem; margin: 1rem 0; } .answers h2 { margin: 0 0 .3rem; border: 0; }
.answers th { background: none; } .warning { border-left: 4px solid var(--unsure); background: var(--sunk); padding: .5rem 1rem; margin: .6rem 0; }
.track { display: inline-block; font-size: .8rem; padding: 0 .5rem; border: 1px solid var(--unsure); border-radius: 1rem; color: var(--unsure); }
nav { font-size: .9rem; margin: .8rem 0; display: flex; flex-wrap: wrap; gap: .2rem .9rem; }
figure { margin: 1rem 0; } figure.drawn { display: inline-block; width: min(100%, 37.5rem); margin-right: 1rem; vertical-align: top; } figcaption { font-weight: 600; margin-bottom: .2rem; } figcaption small { font-weight: 400; color: var(--soft); }
.nothing { margin: .3rem 0; } .chart { width: 100%; height: auto; display: block; } .chart text { fill: var(--ink); font: 13px system-ui, sans-serif; }
.chart .tick { fill: var(--soft); font-size: 12px; } .chart .filled { fill: var(--paper); } .chart .axis-name { fill: var(--soft); font-size: 12.5px; } .chart .group { font-weight: 600; }
.chart .label, .chart .group { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.chart .grid { stroke: var(--line); stroke-width: 1; } .chart .axis { stroke: var(--soft); stroke-width: 1; }
.chart .whisker { stroke: var(--ink); stroke-width: 1.4; } .chart .mark { stroke: var(--unsure); stroke-dasharray: 5 4; }
.chart .bar, .chart .cell { fill: var(--mark); } .chart .box { fill: color-mix(in srgb, var(--mark) 28%, var(--paper)); stroke: var(--mark); }
.chart .dot { fill: var(--mark); fill-opacity: .75; } .chart .stroke { stroke: var(--mark); } .chart .line { fill: none; stroke: var(--mark); stroke-width: 2; }
.chart .band { fill: var(--mark); fill-opacity: .16; } .table { container-type: inline-size; overflow-x: auto; margin: .6rem 0; font-size: .875rem; line-height: 1.4; }
table { border-collapse: collapse; font-size: 1em; min-width: 50%; } th, td { padding: .25em .6em; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { background: var(--sunk); vertical-align: bottom; } td.number, th.number { text-align: right;
  font-variant-numeric: tabular-nums; } td.short { white-space: nowrap; } td.long { overflow-wrap: anywhere; min-width: 13em; }
.sortable.live th { cursor: pointer; } th[aria-sort=ascending]::after { content: " \2191"; } th[aria-sort=descending]::after { content: " \2193"; }
td.good { color: var(--good); font-weight: 600; } td.bad { color: var(--bad); font-weight: 600; } td.unsure { color: var(--unsure); }
td.absent { color: var(--soft); font-style: italic; } pre { background: var(--sunk); padding: .6rem; overflow-x: auto; font-size: .82rem; white-space: pre-wrap; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); } #theme { float: right; font: inherit; font-size: .85rem; color: var(--soft);
  background: none; border: 1px solid var(--line); border-radius: .3rem; display: none; }
@media (max-width: 40rem) { figure.drawn { margin-right: 0; } body { padding: .7rem; font-size: 15px; } h1 { font-size: 1.35rem; } .chart text { font-size: 17px; } .chart .tick, .chart .axis-name { font-size: 16px; } }
@page { size: landscape; margin: 12mm; }
@media print { :root { --paper: #fff; --sunk: #f4f4f4; --ink: #000; --soft: #444; --line: #bbb; } body { max-width: none; padding: 0; font-size: 10.5pt; } #theme, nav { display: none !important; }
  figure, tr { break-inside: avoid; } h2, h3, h2 + p, h2 + p + p, figcaption { break-after: avoid; } .table { overflow: visible; font-size: 8pt; } figure.drawn { width: 29rem; } }
)css";

/// Rows as blocks, below each of the widths that a table may need: every value beside its column's name. `T` is the table.
constexpr const char* kBlocks = R"css(
T table, T tbody, T tr { display: block; min-width: 0; } T thead { display: none; }
T tr { border: 1px solid var(--line); border-radius: .3em; margin: 0 0 .6em; padding: .3em 0; }
T td { display: grid; grid-template-columns: minmax(6em, 30%) minmax(0, 1fr); gap: .8em; border: 0; padding: .12em .6em; text-align: left;
  white-space: normal; overflow-wrap: anywhere; min-width: 0; }
T td::before { content: attr(data-label); color: var(--soft); font-weight: 400; font-style: normal; }
T td:first-child { display: block; font-weight: 600; } T td:first-child::before, T td:empty { display: none; }
)css";

std::string block_style() {
  std::string style;
  for (const int width : block_widths()) {
    std::string rules = kBlocks;
    const std::string table = ".blocks-" + std::to_string(width);
    for (size_t at = rules.find("T t"); at != std::string::npos; at = rules.find("T t", at + table.size()))
      rules.replace(at, 1, table);
    style += "@container (max-width: " + std::to_string(width) + "em) {" + rules + "}\n";
  }
  return style;
}

constexpr const char* kScript = R"js(
(function () {
  var root = document.documentElement;
  window.addEventListener('error', function (e) { root.setAttribute('data-error', e.message); });
  var button = document.getElementById('theme');
  button.style.display = 'inline-block';
  button.addEventListener('click', function () {
    var dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });
  function key(cell) {
    if (!cell) return '';
    return cell.dataset.sort !== undefined ? Number(cell.dataset.sort) : cell.textContent.trim();
  }
  document.querySelectorAll('table.sortable').forEach(function (table) {
    table.classList.add('live');
    table.querySelectorAll('th').forEach(function (head, column) {
      head.tabIndex = 0;
      function sort() {
        var up = head.getAttribute('aria-sort') !== 'ascending', body = table.tBodies[0];
        table.querySelectorAll('th').forEach(function (h) { h.removeAttribute('aria-sort'); });
        head.setAttribute('aria-sort', up ? 'ascending' : 'descending');
        Array.from(body.rows).sort(function (a, b) {
          var x = key(a.cells[column]), y = key(b.cells[column]);
          var numbers = typeof x === 'number' && typeof y === 'number';
          var order = numbers ? x - y : typeof x === 'number' ? -1 : typeof y === 'number' ? 1 : x.localeCompare(y);
          return up ? order : -order;
        }).forEach(function (row) { body.appendChild(row); });
      }
      head.addEventListener('click', sort);
      head.addEventListener('keydown', function (e) { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); sort(); } });
    });
  });
  root.setAttribute('data-ready', document.querySelectorAll('svg.chart').length);
})();
)js";

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         escaped(title) + "</title>\n<style>" + kStyle + block_style() + "</style>\n</head>\n<body>\n" +
         "<button id=\"theme\" type=\"button\">light / dark</button>\n" + body + "\n<script>" + kScript +
         "</script>\n</body>\n</html>\n";
}

}  // namespace tandem::lab
