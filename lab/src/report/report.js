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
