//! The end of the demo: the service retires all agents, and everything is removed.

use std::time::Duration;

use rustix::process::Signal;

use super::Demo;
use crate::demo::STEP_TIMEOUT;
use crate::demo::fault::DemoError;
use crate::demo::screen::Screen;
use crate::demo::service::Happened;
use crate::demo::state::Change;

/// How long to wait for the last events after the end of the service.
const FINAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

impl Demo {
    /// Stops the service, which retires all agents; then lists what is left. True when nothing is
    /// left.
    ///
    /// # Errors
    /// When the service does not stop.
    pub async fn tear_down(mut self, keep: bool) -> (Screen, Result<bool, DemoError>) {
        let retired = self.retire().await;
        let Self { cluster, files, mut screen, service, .. } = self;
        if let Err(error) = retired {
            return (screen, Err(error));
        }
        let left = cluster.left_behind();
        if let Some(left) = &left {
            screen.say(left);
            screen.detail(&service.log_end());
        }
        drop(service);
        cluster.stop().await;
        let kept = files.end(keep);
        if let Ok(Some(folder)) = &kept {
            screen.say(&format!("the files are kept in {}", folder.display()));
        }
        (screen, kept.map(|_| left.is_none()))
    }

    async fn retire(&mut self) -> Result<(), DemoError> {
        // Commands of jobs end with this channel.
        self.news.close();
        let ended = async {
            if self.service.is_down() {
                self.service.start()?;
            }
            if !self.was_ready {
                while !matches!(self.service.next().await?, Happened::Ready) {}
                self.service.follow()?;
            }
            self.service.signal(Signal::TERM)?;
            loop {
                match self.service.next().await? {
                    Happened::ServiceEnded(_) => return Ok::<(), DemoError>(()),
                    Happened::Event(event) => {
                        if let Some(Change::Agent(line)) = self.state.event(&event) {
                            self.screen.agent(&line);
                        }
                    }
                    Happened::Ready | Happened::FollowerEnded => {}
                }
            }
        };
        match tokio::time::timeout(STEP_TIMEOUT, ended).await {
            Ok(ended) => ended?,
            Err(_) => return Err(self.service.did_not_end()),
        }
        // The last events, such as the end of an agent, can still arrive.
        let rest = async {
            while let Ok(Happened::Event(event)) = self.service.next().await {
                if let Some(Change::Agent(line)) = self.state.event(&event) {
                    self.screen.agent(&line);
                }
            }
        };
        // Without them only the lines of agents are out of date.
        let _ = tokio::time::timeout(FINAL_EVENTS_TIMEOUT, rest).await;
        Ok(())
    }
}
