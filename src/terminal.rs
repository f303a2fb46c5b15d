//! The terminal while a live screen, of the demo or of `drover top`, is on it: the alternate screen, no cursor,
//! no echo of keys.
//!
//! [`LiveTerminal::drop`] and a panic put the terminal back as it was. Ctrl-C stays a signal;
//! Ctrl-Z and Ctrl-\ do nothing meanwhile, since they would leave the terminal as it is.

use std::io::{self, BufWriter, Stdout, Write as _};
use std::sync::Once;

use parking_lot::Mutex;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?1049l\x1b[?25h\x1b[0m";
/// Turns a special character off.
const DISABLED: u8 = 0;

/// What the terminal was before; none when it is as it was.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);
static PANICS: Once = Once::new();

struct Before {
    /// None where standard input is no terminal.
    modes: Option<Termios>,
}

pub struct LiveTerminal {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

/// The columns and rows of the terminal on standard output; none where that is no terminal.
pub fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some((size.ws_col, size.ws_row))
}

/// Whether a live screen is on the terminal: false also once a panic gave it back.
pub fn is_taken() -> bool {
    BEFORE.lock().is_some()
}

impl LiveTerminal {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When the terminal takes nothing.
    pub fn enter() -> io::Result<Self> {
        PANICS.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // The message is read on the terminal as it was; it cannot be restored better.
                let _ = restore();
                before(panic);
            }));
        });
        let modes = tcgetattr(io::stdin()).ok();
        if let Some(modes) = &modes {
            let mut quiet = modes.clone();
            quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            quiet.special_codes[SpecialCodeIndex::VSUSP] = DISABLED;
            quiet.special_codes[SpecialCodeIndex::VQUIT] = DISABLED;
            // A terminal that stays as it is shows typed keys, and nothing worse.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &quiet);
        }
        *BEFORE.lock() = Some(Before { modes });
        // From here on, dropping this restores the terminal.
        let written = write(ENTER);
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        let terminal = written.and_then(|()| Terminal::new(backend));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                // The first failure is the one to report.
                let _ = restore();
                Err(error)
            }
        }
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// When the terminal takes nothing.
    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer)) -> io::Result<Buffer> {
        let frame = self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut()))?;
        Ok(frame.buffer.clone())
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        // A terminal that takes nothing is gone.
        let _ = restore();
    }
}

fn restore() -> io::Result<()> {
    let Some(before) = BEFORE.lock().take() else { return Ok(()) };
    if let Some(modes) = &before.modes {
        // Flush: keys that were typed meanwhile are for nobody.
        tcsetattr(io::stdin(), OptionalActions::Flush, modes)?;
    }
    write(LEAVE)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}
