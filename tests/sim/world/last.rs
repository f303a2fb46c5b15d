//! A world's end that nobody asked for: a test that forgets to look at what it leaves behind would
//! pass over actors, guests and records that stay.

use super::World;

impl Drop for World {
    fn drop(&mut self) {
        if self.life.is_some() && !self.judged && !std::thread::panicking() {
            panic!("a world is dropped while its service runs, and nobody called `end`");
        }
    }
}
