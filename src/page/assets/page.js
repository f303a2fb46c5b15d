// Keeps the page up to date, carries out what its buttons say, and takes keys.
// A page is fetched again after an event, and only what differs is put in place: nothing flickers, and
// what somebody selected, opened or typed stays.
"use strict";
(() => {
  const SOONEST = 1000; // between two looks, in milliseconds
  const SLOW = 10000; // of pages that ask the clusters
  const PAUSE = 200; // after a key in a filter
  const find = (what, from = document) => from.querySelector(what);
  const all = (what, from = document) => [...from.querySelectorAll(what)];

  // Times; `word` is the one before them in the sentence, whose place they take.
  const far = (at, word) => {
    const seconds = Math.round((Date.now() - at) / 1000);
    const size = Math.abs(seconds);
    const text = size < 60 ? `${size} s` : size < 3600 ? `${Math.floor(size / 60)} min`
      : size < 36000 ? `${Math.floor(size / 3600)} h ${Math.floor(size / 60) % 60} min`
      : size < 172800 ? `${Math.floor(size / 3600)} h` : `${Math.floor(size / 86400)} d`;
    if (word === "since" && seconds >= 0) return `for ${text}`;
    if (word === "until") return seconds < 0 ? `for ${text} more` : `until ${text} ago`;
    return seconds >= 0 ? `${text} ago` : `in ${text}`;
  };
  const times = () => {
    for (const one of all("time[datetime]", find("#main") || document)) {
      const at = Date.parse(one.dateTime);
      if (!Number.isNaN(at)) {
        one.title = one.dateTime;
        // What an old event says of its own time stays as it was.
        if (one.dataset.word && one.closest("[data-still]")) continue;
        const text = far(at, one.dataset.word);
        if (one.textContent !== text) one.textContent = text;
      }
    }
  };

  const running = new Set(); // buttons whose call has no answer yet

  // Puts into `old` what `fresh` has.
  const own = (node) => (node.nodeType === 1 && node.id) || null;
  const attributes = (old, fresh) => {
    for (const { name, value } of [...fresh.attributes]) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      // What the reader opened stays open, and a button whose call runs stays off.
      const kept = (old.tagName === "DETAILS" && name === "open") || (old.tagName === "TIME" && name === "title")
        || (name === "disabled" && running.has(old));
      if (!fresh.hasAttribute(name) && !kept) old.removeAttribute(name);
    }
  };
  const same = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName && own(one) === own(other);
  const put = (old, fresh) => {
    if (old.nodeType === 3) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.nodeType !== 1) return;
    const here = old.classList.contains("here");
    attributes(old, fresh);
    if (here) old.classList.add("here");
    if (old.tagName === "INPUT") return;
    if (old.tagName === "TIME") return;
    const known = new Map();
    for (const child of old.childNodes) if (own(child)) known.set(own(child), child);
    let place = old.firstChild;
    for (const child of [...fresh.childNodes]) {
      const named = own(child) && known.get(own(child));
      if (named) {
        if (named !== place) old.insertBefore(named, place);
        else place = place.nextSibling;
        put(named, child);
      } else if (place && !own(place) && same(place, child)) {
        const next = place.nextSibling;
        put(place, child);
        place = next;
      } else {
        old.insertBefore(child, place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  };

  // Looks again.
  const mode = () => (find("#main") && find("#main").dataset.live) || "no";
  let looking = false;
  let wanted = false;
  let narrowed = false; // the filter changed during a look, whose answer is of the one before
  let last = 0;
  let took = 0; // of the last look, in milliseconds: who is slow is asked less often
  let timer = null;
  // Where the page goes next. The first wins: a look that finds the session over does not undo a logout.
  let leaving = false;
  let acting = false; // an action runs that leads elsewhere
  const go = (place) => {
    if (leaving) return;
    leaving = true;
    location.href = place;
  };
  const look = async () => {
    if (looking) { wanted = true; return; }
    looking = true;
    wanted = false;
    last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (answer.redirected && new URL(answer.url).pathname === "/login") { if (!acting) go(answer.url); return; }
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        // What a script of its own draws stays as it is.
        for (const part of mode() === "own" ? ["header.top nav"] : ["#main", "header.top nav"]) {
          if (find(part) && find(part, fresh)) put(find(part), find(part, fresh));
        }
        times();
        mark();
      }
    } catch {
      // The stream says that the service is away.
    } finally {
      took = Date.now() - last;
      looking = false;
      if (narrowed) { narrowed = false; look(); } else if (wanted) soon();
    }
  };
  const soon = () => {
    if (mode() === "no" || mode() === "own") return;
    if (document.hidden) { wanted = true; return; }
    if (timer) return;
    const pause = Math.max(mode() === "slow" ? SLOW : SOONEST, 5 * took);
    timer = setTimeout(() => { timer = null; look(); }, Math.max(120, last + pause - Date.now()));
  };

  // The stream of events. A hidden page has none, nor one that draws itself: browsers open few connections to one host.
  let stream = null;
  const say = (how, text) => {
    const live = find("#live");
    if (live) { live.className = `live ${how}`; live.textContent = text; }
  };
  const open = () => {
    if (mode() === "own" && find("#live")) find("#live").hidden = true;
    if (stream || document.hidden || !find("#live") || mode() === "own") return;
    stream = new EventSource("/v1/events");
    stream.onopen = () => { say("on", "live"); soon(); };
    stream.onerror = () => {
      say("off", "no connection");
      // A session may be over: then the look leads to the login.
      if (stream && stream.readyState === EventSource.CLOSED) { stream = null; look(); setTimeout(open, 3000); }
    };
    for (const kind of document.documentElement.dataset.kinds.split(" ")) stream.addEventListener(kind, soon);
  };
  const close = () => {
    if (stream) { stream.close(); say("", "paused"); }
    stream = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : (open(), soon())));

  // Notes.
  const note = (text, isBad) => {
    const one = document.createElement("p");
    one.className = isBad ? "note bad" : "note";
    one.textContent = text.replaceAll("`", "");
    find("#notes").append(one);
    setTimeout(() => one.remove(), isBad ? 20000 : 8000);
  };

  // Without TLS a browser has no clipboard for scripts, and still copies what is selected.
  const copy = async (button) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(button.dataset.copy);
    const area = document.createElement("textarea");
    area.value = button.dataset.copy;
    button.after(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    button.focus();
    if (!done) throw new Error("not copied");
  };

  // Buttons: `data-do` is a method and a path, `data-ask` what to ask before.
  const asked = (button) => new Promise((resolve) => {
    const dialog = find("#ask");
    find("#ask-text").textContent = button.dataset.ask;
    find("#ask-command").textContent = button.dataset.command || "";
    find("#ask button[value=yes]").classList.toggle("danger", button.classList.contains("danger"));
    dialog.returnValue = "no";
    dialog.showModal();
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
  const shown = (out) => {
    const file = URL.createObjectURL(new Blob([out.privateKey], { type: "application/octet-stream" }));
    find("#key-text").textContent = out.privateKey;
    find("#key-copy").dataset.copy = out.privateKey;
    find("#key-file").href = file;
    // An agent that is held already needs no next failure.
    find("#key-next").hidden = "agent" in out;
    find("#key").addEventListener("close", () => {
      find("#key-text").textContent = "";
      delete find("#key-copy").dataset.copy;
      find("#key-file").removeAttribute("href");
      URL.revokeObjectURL(file);
    }, { once: true });
    find("#key").showModal();
  };
  // What came of an action, in words, and whether it is less than was asked for.
  const some = (count, thing) => (count === 1 ? `1 ${thing}` : `${count || "no"} ${thing}s`);
  const came = (out, path) => {
    if (/^\/v1\/breakers\//.test(path)) return ["drover tries again; whether it works shows with the next agent", false];
    if (Array.isArray(out.agents) && "wanted" in out) {
      const begun = out.agents.length ? `${some(out.agents.length, "agent")} of ${out.wanted} on the way` : "nothing starts";
      const why = [out.short, out.paused].filter(Boolean).join("; ");
      return [why ? `${begun}: ${why}` : begun, Boolean(why)];
    }
    if (out.clusters) {
      const each = Object.values(out.clusters);
      const found = each.reduce((sum, lines) => sum + lines.length, 0);
      const read = `${some(each.length, "cluster")} read, ${some(found, "finding")}`;
      return [read, each.length === 0];
    }
    if ("generation" in out) {
      const due = (out.restartDue || []).join(", ");
      return [`configuration generation ${out.generation} is in force${due ? `; at the next start only: ${due}` : ""}`, false];
    }
    if ("retired" in out) return [out.retired ? `${some(out.retired, "idle agent")} retired` : "no agent is idle above the minimum", false];
    if ("changed" in out && !out.changed) return ["it was so already", false];
    return ["done", false];
  };
  const act = async (button) => {
    // What the question was about is done, whatever the button becomes meanwhile.
    const { body, then } = button.dataset;
    const label = button.textContent.trim();
    const [method, path] = button.dataset.do.split(" ");
    if (button.dataset.ask && !(await asked(button))) return;
    button.disabled = true;
    running.add(button);
    try {
      const headers = { "X-Csrf-Token": find('meta[name="csrf"]').content };
      if (body) headers["Content-Type"] = "application/json";
      acting = Boolean(then);
      const answer = await fetch(path, { method, headers, body, credentials: "same-origin" });
      const text = await answer.text();
      let out = {};
      try { out = JSON.parse(text); } catch { /* Nothing is said. */ }
      if (!answer.ok) { note(out.detail || `drover answered ${answer.status}`, true); return; }
      if (out.continueAt) { go(out.continueAt); return; }
      if (then) { go(then); return; }
      const unread = out.unread || [];
      for (const one of unread) {
        const which = one.cloud ? `the cluster of cloud ${one.cloud}` : `cluster ${one.cluster}`;
        note(`${label}: ${which} was not read: ${one.why}; drover tries again by itself`, true);
      }
      if (out.refused) note(`${label}: the configuration was not read again: ${out.refused}`, true);
      const [outcome, isLess] = came(out, path);
      if ((unread.length === 0 && !out.refused) || !isLess) note(`${label}: ${outcome}`, isLess);
      if (out.privateKey) shown(out);
      last = 0;
      await look();
    } catch {
      note("drover was not reached. Nobody knows whether it was done: look again.", true);
    } finally {
      acting = false;
      running.delete(button);
      // What the look found may keep it, with the reason beside it.
      button.disabled = button.hasAttribute("aria-describedby");
    }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button && button.dataset.do) act(button);
    if (button && button.dataset.copy) {
      copy(button).then(() => note("Copied", false), () => note("The browser did not copy it: select the text", true));
    }
  });

  let row = -1;

  // Filters hold while one types; without this script, Enter asks for them.
  let typed = null;
  const narrow = (form) => {
    const url = new URL(location.href);
    for (const [key, value] of new FormData(form)) {
      if (value) url.searchParams.set(key, value); else url.searchParams.delete(key);
    }
    if (url.href === location.href) return;
    history.replaceState(history.state, "", url);
    row = -1;
    if (looking) narrowed = true; else look();
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[role=search]");
    if (!form) return;
    clearTimeout(typed);
    typed = setTimeout(() => narrow(form), PAUSE);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[role=search]");
    if (!form) return;
    event.preventDefault();
    clearTimeout(typed);
    narrow(form);
    find("input", form).blur();
  });

  // Keys.
  let after = null;
  const rows = () => all("table.rows tbody tr");
  const mark = () => rows().forEach((one, place) => one.classList.toggle("here", place === row));
  const move = (step) => {
    const known = rows();
    if (known.length === 0) return;
    row = Math.max(0, Math.min(known.length - 1, row + step));
    mark();
    known[row].scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, dialog, [data-keys]");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing) {
      if (event.key === "Escape" && event.target.tagName === "INPUT") event.target.blur();
      return;
    }
    if (after === "g") {
      after = null;
      const link = find(`header.top nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    const does = {
      "g": () => { after = "g"; setTimeout(() => { after = null; }, 1500); },
      "/": () => { const field = find("#q"); if (field) { field.focus(); field.select(); } },
      "j": () => move(1),
      "k": () => move(-1),
      "Enter": () => { const link = row >= 0 && rows()[row] && find("a", rows()[row]); if (link) link.click(); },
      "r": () => { last = 0; look(); },
      "?": () => find("#keys") && find("#keys").showModal(),
    }[event.key];
    if (!does || (event.key === "Enter" && event.target.closest("a, button, summary"))) return;
    if (event.key !== "Enter") event.preventDefault();
    does();
  });

  times();
  setInterval(times, 1000);
  setInterval(() => { if (mode() === "slow") soon(); }, SLOW);
  // What is foreseen changes without an event, too.
  setInterval(() => { if (mode() === "yes") soon(); }, 3 * SLOW);
  open();
})();
