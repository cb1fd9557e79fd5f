// The switch between light and dark: the choice is stored if the browser allows it.
const themeSwitch = document.getElementById("theme");

function setTheme(name) {
  if (name === "light" || name === "dark") document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new Event("theme"));
}

function keptTheme(name) {
  try {
    if (name !== undefined) localStorage.setItem("memlint-theme", name);
    return localStorage.getItem("memlint-theme") ?? "";
  } catch {
    return name ?? "";
  }
}

themeSwitch.value = keptTheme();
if (themeSwitch.selectedIndex < 0) themeSwitch.value = "";
setTheme(themeSwitch.value);
themeSwitch.closest("label").hidden = false;
themeSwitch.addEventListener("change", () => setTheme(keptTheme(themeSwitch.value)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("theme")));
