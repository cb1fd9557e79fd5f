// Treemaps: each is one stop of the Tab key; arrows go from tile to tile; a text below describes the tile at the pointer.
for (const map of document.querySelectorAll(".treemap")) {
  const said = document.getElementById(map.dataset.said);
  const tiles = [...map.querySelectorAll("a")];
  const show = (tile) => {
    said.textContent = tile ? tile.getAttribute("aria-label") : said.dataset.empty;
  };
  const reach = (tile) => {
    for (const other of tiles) other.tabIndex = other === tile ? 0 : -1;
  };
  if (tiles.length) reach(tiles[0]);
  tiles.forEach((tile, number) => {
    tile.addEventListener("focus", () => {
      reach(tile);
      show(tile);
    });
    tile.addEventListener("keydown", (event) => {
      const next = { ArrowRight: number + 1, ArrowDown: number + 1, ArrowLeft: number - 1, ArrowUp: number - 1,
        Home: 0, End: tiles.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      tiles[Math.max(0, Math.min(tiles.length - 1, next))].focus();
    });
  });
  map.addEventListener("pointerover", (event) => {
    const tile = event.target.closest("a");
    if (tile) show(tile);
  });
  for (const tile of tiles) tile.removeAttribute("title");
}
