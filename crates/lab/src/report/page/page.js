'use strict';
// Everything on the page is there without this. It filters by switch, tells the value that is
// nearest to the pointer, and shows where else the same switch is.
(() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const names = new Map();
  for (const item of all('.legend li[data-s]')) names.set(item.dataset.s, item.textContent.trim());
  const of = name => all('[data-s]').filter(element => element.dataset.s === name);

  // Filters.
  if (names.size > 1) {
    const bar = document.createElement('form');
    bar.className = 'filter';
    bar.setAttribute('aria-label', 'Switches to show');
    for (const [name, title] of names) {
      const label = document.createElement('label');
      const box = document.createElement('input');
      box.type = 'checkbox';
      box.checked = true;
      box.autocomplete = 'off';
      box.addEventListener('change', () => {
        for (const element of of(name)) element.classList.toggle('off', !box.checked);
      });
      label.append(box, title);
      bar.append(label);
    }
    document.querySelector('header').after(bar);
  }

  // Linked views: what belongs to a switch stands out everywhere.
  let hot = null;
  const heat = name => {
    if (name === hot) return;
    if (hot) for (const element of of(hot)) element.classList.remove('hot');
    hot = name;
    document.documentElement.classList.toggle('linked', Boolean(hot));
    if (hot) for (const element of of(hot)) element.classList.add('hot');
  };
  for (const item of all('.legend li[data-s]')) {
    item.tabIndex = 0;
    for (const event of ['pointerenter', 'focus']) item.addEventListener(event, () => heat(item.dataset.s));
    for (const event of ['pointerleave', 'blur']) item.addEventListener(event, () => heat(null));
  }

  // Values.
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  tip.setAttribute('role', 'status');
  document.body.append(tip);
  const NEAR = 26;
  const told = new Map();
  const points = svg => {
    if (!told.has(svg)) {
      const titles = [...svg.querySelectorAll('title')];
      told.set(svg, titles.map(title => ({ shape: title.parentNode, text: title.textContent })));
      for (const title of titles) title.remove();
    }
    return told.get(svg);
  };
  const show = event => {
    const svg = event.target.closest && event.target.closest('figure svg[role=img]');
    let best = null, least = NEAR;
    for (const point of svg ? points(svg) : []) {
      const box = point.shape.getBoundingClientRect();
      const x = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
      const y = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
      const middle = Math.hypot(event.clientX - box.left - box.width / 2, event.clientY - box.top - box.height / 2);
      const far = Math.hypot(x, y) + middle / 1000;
      if (box.width && far < least) [best, least] = [point, far];
    }
    tip.hidden = !best;
    if (!best) return heat(null);
    tip.textContent = best.text;
    const wide = document.documentElement.clientWidth;
    tip.style.left = Math.max(4, Math.min(event.clientX + 12, wide - tip.offsetWidth - 4)) + 'px';
    tip.style.top = (event.clientY + (event.clientY > innerHeight - 80 ? -tip.offsetHeight - 10 : 14)) + 'px';
    const series = best.shape.closest('[data-s]');
    heat(series ? series.dataset.s : null);
  };
  addEventListener('pointermove', show);
  addEventListener('pointerdown', show);
  addEventListener('scroll', () => { tip.hidden = true; }, { passive: true });

  // A link into a folded part opens it, and printing opens all.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.tagName === 'DETAILS') part.open = true;
  };
  addEventListener('hashchange', open);
  open();
})();
