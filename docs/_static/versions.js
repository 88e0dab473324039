// Fills the menu of versions from versions.json, which is next to the versions' folders (docs/publish.py).
addEventListener("DOMContentLoaded", async () => {
  const menu = document.getElementById("versions");
  const here = new URL(menu.dataset.root, location.href);
  const page = location.pathname.slice(here.pathname.length);
  const answer = await fetch(new URL("../versions.json", here)).catch(() => null);
  if (!answer?.ok) return; // pages that were not published have one version
  const current = menu.value;
  const versions = await answer.json();
  menu.replaceChildren(...versions.map((name) => new Option(name, name, name === current, name === current)));
  menu.addEventListener("change", async () => {
    const there = new URL(`../${menu.value}/${page}`, here);
    const isThere = await fetch(there, { method: "HEAD" }).then((found) => found.ok, () => false);
    location.href = isThere ? there : new URL(`../${menu.value}/index.html`, here);
  });
});
