// A terminal in an agent. The service keeps the screen and sends what changed of it; this draws lines, and sends keys.
// A browser that lost its connection, or was loaded again, reads on from the same screen.
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const box = find("terminal");
  if (!box) return;
  const [frame, scroll, above, screen, keys] =
    ["frame", "scroll", "above", "screen", "keys"].map((name) => find(`terminal-${name}`));
  const [openButton, closeButton, copyButton, ctrlButton] =
    ["open", "close", "copy", "ctrl"].map((name) => find(`terminal-${name}`));
  const agent = box.dataset.agent;
  const kept = `terminal of ${agent}`;
  const LINES_ABOVE = 500;
  const PIECE = 4000; // letters in one call: at most 16,000 bytes
  let id = null;
  let stream = null;
  let mode = { columns: 80, rows: 24 };
  let asked = ""; // the size that the service knows

  const say = (text, how) => {
    const state = find("terminal-state");
    state.textContent = text;
    state.className = `terminal-state ${how || ""}`;
  };
  const call = (method, path, body) => fetch(path, {
    method,
    credentials: "same-origin",
    headers: { "X-Csrf-Token": document.querySelector('meta[name="csrf"]').content, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const detail = async (answer) => {
    try { return (await answer.json()).detail; } catch { return `drover answered ${answer.status}`; }
  };

  // Drawing.
  const COLOUR = /^([fg])(.+)$/;
  const hex = (value) => value.toString(16).padStart(2, "0");
  // The colours 16 to 255 of xterm: a cube, and greys.
  const colour = (word) => {
    if (word.startsWith("#")) return word;
    const number = Number(word);
    if (number >= 232) return `#${hex(8 + 10 * (number - 232)).repeat(3)}`;
    const level = (place) => { const step = Math.floor((number - 16) / place) % 6; return step ? 55 + 40 * step : 0; };
    return `#${hex(level(36))}${hex(level(6))}${hex(level(1))}`;
  };
  // Letters keep a contrast of 4.5 to the paper (WCAG 2.2, 1.4.3): any other colour is mixed with ink until then.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const parts = (word) => [1, 3, 5].map((place) => parseInt(word.slice(place, place + 2), 16));
  const light = (word) => parts(word).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const readable = (word) => {
    const [paper, ink] = dark.matches ? [light("#0d100f"), 255] : [light("#fdfdfc"), 0];
    let found = word;
    for (let step = 0; step < 10; step += 1) {
      const [low, high] = [light(found), paper].sort((one, other) => one - other);
      if ((high + 0.05) / (low + 0.05) >= 4.5) break;
      found = `#${parts(found).map((one) => hex(Math.round(one + (ink - one) * 0.2))).join("")}`;
    }
    return found;
  };
  const piece = ([text, style]) => {
    if (!style) return document.createTextNode(text);
    const span = document.createElement("span");
    span.textContent = text;
    for (const word of style.split(" ")) {
      const found = COLOUR.exec(word);
      if (found) {
        const [, side, name] = found;
        const isNamed = !name.startsWith("#") && Number(name) < 16;
        const hasGround = /(^| )g/.test(style) || /(^| )r( |$)/.test(style);
        const any = () => (side === "f" && !hasGround ? readable(colour(name)) : colour(name));
        span.style.setProperty(`--${side}`, isNamed ? `var(--${side === "f" ? "c" : "k"}${name})` : any());
      } else span.classList.add(`t${word}`);
    }
    return span;
  };
  const line = (pieces) => {
    const one = document.createElement("div");
    one.append(...pieces.map(piece));
    return one;
  };
  const cursor = document.createElement("i");
  cursor.className = "terminal-cursor";
  cursor.setAttribute("aria-hidden", "true");
  const atEnd = () => scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - 8;
  const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };
  const draw = (next) => {
    const follows = atEnd() || next.whole;
    if (next.whole) {
      above.replaceChildren();
      screen.replaceChildren(...Array.from({ length: next.rows }, () => line([])), cursor);
    }
    if (next.above) above.append(...next.above.map(line));
    while (above.childElementCount > LINES_ABOVE) above.firstChild.remove();
    for (const [number, pieces] of Object.entries(next.lines)) screen.children[number].replaceWith(line(pieces));
    above.hidden = next.fullScreen;
    cursor.hidden = !next.cursor;
    if (next.cursor) {
      const [row, column] = next.cursor;
      cursor.style.setProperty("--row", row);
      cursor.style.setProperty("--column", Math.min(column, next.columns - 1));
    }
    if (next.title !== mode.title) document.title = `${next.title || "Terminal"} · ${agent} · drover`;
    mode = next;
    if (follows) toEnd();
  };

  // The size: as many letters as fit.
  const measured = () => {
    const ruler = document.createElement("span");
    ruler.textContent = "0".repeat(50);
    ruler.className = "terminal-ruler";
    screen.append(ruler);
    const { width, height } = ruler.getBoundingClientRect();
    ruler.remove();
    const inside = getComputedStyle(scroll);
    const room = (size, ...sides) => size - sides.reduce((sum, side) => sum + parseFloat(inside[side]), 0);
    const within = (count, least, most) => Math.max(least, Math.min(most, Math.floor(count)));
    return {
      columns: within(room(scroll.clientWidth, "paddingLeft", "paddingRight") / (width / 50), 20, 300),
      rows: within(room(scroll.clientHeight, "paddingTop", "paddingBottom") / height, 5, 120),
    };
  };
  let sizing = null;
  const resized = () => {
    if (!id) return;
    clearTimeout(sizing);
    sizing = setTimeout(async () => {
      const size = measured();
      const text = `${size.columns}x${size.rows}`;
      if (!id || text === asked) return;
      asked = text;
      try { await call("POST", `/v1/terminals/${id}/size`, size); } catch { asked = ""; }
    }, 150);
  };
  new ResizeObserver(resized).observe(scroll);

  // Beginning and end.
  const over = (reason) => {
    if (stream) stream.close();
    stream = null;
    id = null;
    queue = "";
    sessionStorage.removeItem(kept);
    box.classList.remove("is-open");
    closeButton.hidden = true;
    openButton.hidden = false;
    openButton.textContent = "Open again";
    say(`ended: ${reason.replace("the terminal has ended: ", "")}`, "off");
  };
  const attach = (name) => {
    id = name;
    sessionStorage.setItem(kept, name);
    box.classList.add("is-open");
    closeButton.hidden = false;
    openButton.hidden = true;
    const free = find("terminal-free");
    if (free) free.hidden = true;
    const mine = new EventSource(`/v1/terminals/${name}`);
    stream = mine;
    mine.onopen = () => { say("open", "on"); resized(); };
    mine.addEventListener("screen", (event) => draw(JSON.parse(event.data)));
    mine.addEventListener("end", (event) => over(JSON.parse(event.data).reason));
    mine.onerror = async () => {
      if (stream !== mine) return;
      say("no connection: trying again", "off");
      if (mine.readyState !== EventSource.CLOSED) return;
      // It was refused: ask why.
      try {
        const abort = new AbortController();
        const answer = await fetch(`/v1/terminals/${name}`, { credentials: "same-origin", signal: abort.signal });
        if (stream !== mine) return;
        if (!answer.ok && answer.status < 500) { over(await detail(answer)); return; }
        abort.abort();
      } catch { /* drover is away. */ }
      setTimeout(() => { if (stream === mine) attach(name); }, 2000);
    };
    // Behind the first frame: a browser looks before it for what has the focus by itself.
    requestAnimationFrame(() => setTimeout(() => keys.focus({ preventScroll: true })));
  };
  const open = async () => {
    openButton.disabled = true;
    say("opening");
    try {
      const size = measured();
      const holdSeconds = box.dataset.hold ? Number(box.dataset.hold) : undefined;
      const answer = await call("POST", `/v1/agents/${encodeURIComponent(agent)}/terminals`, { ...size, holdSeconds });
      if (!answer.ok) { say(await detail(answer), "off"); return; }
      asked = `${size.columns}x${size.rows}`;
      attach((await answer.json()).id);
    } catch {
      say("drover was not reached", "off");
    } finally {
      openButton.disabled = false;
    }
  };
  openButton.addEventListener("click", open);
  closeButton.addEventListener("click", async () => {
    if (!id) return;
    try {
      const answer = await call("DELETE", `/v1/terminals/${id}`);
      if (!answer.ok) over(await detail(answer));
    } catch {
      say("drover was not reached", "off");
    }
  });

  // Keys. One call is under way at a time, so that they keep their order.
  let queue = "";
  let sending = false;
  const flush = async () => {
    if (sending) return;
    sending = true;
    while (id && queue) {
      // No letter of two parts is cut.
      const cut = /[\ud800-\udbff]/.test(queue[PIECE - 1] || "") ? PIECE - 1 : PIECE;
      const text = queue.slice(0, cut);
      try {
        const answer = await call("POST", `/v1/terminals/${id}/keys`, { text });
        if (answer.status === 429) {
          say("the agent does not read what is typed", "off");
          await new Promise((resolve) => setTimeout(resolve, 500));
          continue;
        }
        if (!answer.ok && id) say(await detail(answer), "off");
        else if (stream && stream.readyState === EventSource.OPEN) say("open", "on");
      } catch {
        say("drover was not reached: what was typed last may be lost", "off");
      }
      // More may have been typed meanwhile.
      queue = queue.slice(text.length);
    }
    sending = false;
  };
  const send = (text) => {
    if (!id || !text) return;
    toEnd();
    queue += text;
    flush();
  };
  const ESC = "\x1b";
  const LETTERS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
  const NUMBERS = {
    Insert: 2, Delete: 3, PageUp: 5, PageDown: 6, F5: 15, F6: 17, F7: 18, F8: 19, F9: 20, F10: 21, F11: 23, F12: 24,
  };
  const FUNCTIONS = { F1: "P", F2: "Q", F3: "R", F4: "S" };
  const PLAIN = { Enter: "\r", Tab: "\t", Escape: ESC, Backspace: "\x7f" };
  // What a terminal sends for a key; null for what is typed as text.
  const spelled = (event) => {
    const { key, shiftKey, altKey, ctrlKey } = event;
    const held = 1 + (shiftKey ? 1 : 0) + (altKey ? 2 : 0) + (ctrlKey ? 4 : 0);
    if (LETTERS[key]) {
      if (held > 1) return `${ESC}[1;${held}${LETTERS[key]}`;
      return `${ESC}${mode.applicationKeys ? "O" : "["}${LETTERS[key]}`;
    }
    if (NUMBERS[key]) return held > 1 ? `${ESC}[${NUMBERS[key]};${held}~` : `${ESC}[${NUMBERS[key]}~`;
    if (FUNCTIONS[key]) return held > 1 ? `${ESC}[1;${held}${FUNCTIONS[key]}` : `${ESC}O${FUNCTIONS[key]}`;
    if (key === "Tab" && shiftKey) return `${ESC}[Z`;
    if (PLAIN[key]) return (altKey ? ESC : "") + (key === "Backspace" && ctrlKey ? "\b" : PLAIN[key]);
    if ([...key].length !== 1) return null;
    if (ctrlKey) {
      const code = key === " " ? 0 : key === "?" ? 127 : key.toUpperCase().charCodeAt(0) - 64;
      if (code < 0 || (code > 31 && code !== 127)) return null;
      return (altKey ? ESC : "") + String.fromCharCode(code);
    }
    return altKey ? ESC + key : null;
  };
  const copy = () => {
    const text = String(getSelection()) || [...above.children, ...screen.querySelectorAll("div")]
      .map((one) => one.textContent).join("\n").trimEnd();
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => say("copied", "on"), () => say("the browser did not copy", "off"));
    else say("the browser copies only on HTTPS or localhost: select, and use its menu", "off");
  };
  const latch = (isOn) => ctrlButton.setAttribute("aria-pressed", isOn ? "true" : "false");
  const isLatched = () => ctrlButton.getAttribute("aria-pressed") === "true";
  keys.addEventListener("keydown", (event) => {
    if (event.isComposing || event.metaKey) return;
    const { key, shiftKey, ctrlKey, altKey } = event;
    const does = (what) => { event.preventDefault(); what(); };
    if (ctrlKey && shiftKey && !altKey) {
      if (key === "ArrowUp") return does(() => (closeButton.hidden ? openButton : closeButton).focus());
      if (key.toLowerCase() === "c") return does(copy);
      if (key.toLowerCase() === "v") return undefined;
    }
    if (shiftKey && !ctrlKey && (key === "PageUp" || key === "PageDown") && !mode.fullScreen) {
      return does(() => scroll.scrollBy(0, (key === "PageUp" ? -0.9 : 0.9) * scroll.clientHeight));
    }
    if (shiftKey && key === "Insert") return undefined;
    // AltGr writes letters.
    if (event.getModifierState("AltGraph")) return undefined;
    const text = spelled(event);
    return text === null ? undefined : does(() => send(text));
  });
  // Text, as keyboards, input methods and phones write it.
  keys.addEventListener("input", (event) => {
    if (event.isComposing) return;
    let text = keys.value.replace(/\n/g, "\r");
    keys.value = "";
    if (isLatched() && text) {
      text = spelled({ key: text[0], ctrlKey: true }) ?? text;
      latch(false);
    }
    send(text);
  });
  keys.addEventListener("compositionend", () => {
    send(keys.value);
    keys.value = "";
  });
  keys.addEventListener("paste", (event) => {
    event.preventDefault();
    const text = event.clipboardData.getData("text/plain").replace(/\r?\n/g, "\r");
    // What is pasted ends where it ends: it cannot say so itself.
    send(mode.bracketedPaste ? `${ESC}[200~${text.replaceAll(ESC, "")}${ESC}[201~` : text);
  });
  for (const button of box.querySelectorAll("[data-key]")) {
    button.addEventListener("click", () => {
      send(spelled({ key: button.dataset.key }));
      keys.focus({ preventScroll: true });
    });
  }
  ctrlButton.addEventListener("click", () => { latch(!isLatched()); keys.focus({ preventScroll: true }); });
  copyButton.addEventListener("click", copy);
  frame.addEventListener("mouseup", () => {
    // What was selected stays so.
    if (getSelection().isCollapsed) keys.focus({ preventScroll: true });
  });
  // A program with the whole screen, such as a pager, scrolls by arrow keys.
  scroll.addEventListener("wheel", (event) => {
    if (!id || !mode.fullScreen) return;
    event.preventDefault();
    send(spelled({ key: event.deltaY < 0 ? "ArrowUp" : "ArrowDown" }).repeat(3));
  }, { passive: false });

  // Colours that were mixed for the other paper are drawn again.
  dark.addEventListener("change", () => {
    if (!stream) return;
    stream.close();
    attach(id);
  });

  const before = sessionStorage.getItem(kept);
  if (before) {
    say("opening");
    attach(before);
  }
})();
