//! How far drover is with an image that a template waits for, in words for people.

use drover_model::id::TemplateId;
use drover_model::phase::ImagePhase;
use drover_model::time::WallTime;

use crate::source::lacks_version;

/// How far drover is with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Making {
    /// A build runs, and is this far.
    Runs(ImagePhase),
    /// A build failed, and its guest is being removed.
    Removes { failure: (WallTime, String), then: Then },
    /// A build begins by itself.
    Begins,
    /// No build can begin yet, and when drover looks again.
    Refused { why: String, next: WallTime },
    /// The last build failed, and nothing of it is left.
    Failed { failure: (WallTime, String), then: Then },
}

/// What comes after a build that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// drover builds it again as soon as it can.
    Again,
    /// drover tries again half an hour after the end of this build.
    Later,
    /// drover tries again then.
    At(WallTime),
    /// An operator builds it.
    Operator,
}

impl Making {
    /// Whether it is so while no version of the image is there at all.
    fn needs_none(&self) -> bool {
        match self {
            Self::Runs(_) | Self::Removes { .. } => false,
            Self::Begins | Self::Refused { .. } | Self::Failed { .. } => true,
        }
    }

    /// Why a template starts no agents that pauses for another reason; none where this is not the cause.
    pub(super) fn says(&self, id: &TemplateId, image: &TemplateId, pause: &str) -> Option<String> {
        if self.needs_none() && !pause.starts_with(&lacks_version(image)) {
            return None;
        }
        let name = &image.name;
        let waits = format!("{id} waits for image `{name}`");
        Some(match self {
            Self::Runs(phase) => format!(
                "{waits}, which is being built: {}; `drover image list` shows the build",
                phase.name()
            ),
            Self::Removes { failure: (at, why), then } => {
                let then = match then {
                    Then::Again => ", and builds the image again after that".to_owned(),
                    Then::Later => ", and tries again 30 minutes after that".to_owned(),
                    Then::At(next) => format!(", and tries again at {}", next.rfc3339()),
                    Then::Operator => {
                        format!("; after that `drover image build {name}` tries again")
                    }
                };
                format!(
                    "{waits}: its build failed at {}: {why}; drover removes the guest of that \
                     build{then}",
                    at.rfc3339()
                )
            }
            Self::Begins => {
                format!("{waits}, of which there is no version yet: drover begins to build it")
            }
            Self::Refused { why, next } => format!(
                "{waits}, and no build of it can begin yet: {why}; the next try is at {}",
                next.rfc3339()
            ),
            Self::Failed { failure: (at, why), then } => {
                let then = match then {
                    Then::Again => "drover builds it again".to_owned(),
                    Then::At(next) => format!(
                        "the next try is at {}, and `drover image build {name}` tries at once",
                        next.rfc3339()
                    ),
                    Then::Later | Then::Operator => {
                        format!("`drover image build {name}` tries again")
                    }
                };
                format!("{waits}: the last build failed at {}: {why}; {then}", at.rfc3339())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use drover_model::testing::template_id;

    use super::*;

    // Invariant: a template without agents says how far drover is with its image, and only where that is
    // why it has none.

    #[test]
    fn what_keeps_a_template_from_its_image_is_said_with_what_comes_next() {
        let (id, image) = (template_id("c/linux"), template_id("c/debian"));
        let failure = || (WallTime(0), "no room".to_owned());
        let next = WallTime(1_800_000);
        for (making, reported) in [
            (
                Making::Runs(ImagePhase::Booting),
                ", which is being built: Booting; `drover image list` shows the build",
            ),
            (Making::Begins, ", of which there is no version yet: drover begins to build it"),
            (
                Making::Refused { why: "node `pve1` is offline".into(), next },
                ", and no build of it can begin yet: node `pve1` is offline; the next try is at \
                 1970-01-01T00:30:00Z",
            ),
            (
                Making::Removes { failure: failure(), then: Then::Again },
                ": its build failed at 1970-01-01T00:00:00Z: no room; drover removes the guest of that \
                 build, and builds the image again after that",
            ),
            (
                Making::Removes { failure: failure(), then: Then::Operator },
                ": its build failed at 1970-01-01T00:00:00Z: no room; drover removes the guest of that \
                 build; after that `drover image build debian` tries again",
            ),
            (
                Making::Failed { failure: failure(), then: Then::At(next) },
                ": the last build failed at 1970-01-01T00:00:00Z: no room; the next try is at \
                 1970-01-01T00:30:00Z, and `drover image build debian` tries at once",
            ),
            (
                Making::Failed { failure: failure(), then: Then::Operator },
                ": the last build failed at 1970-01-01T00:00:00Z: no room; `drover image build debian` \
                 tries again",
            ),
        ] {
            let pause = "image `debian` has no version on cloud `c`: it is so";
            let said = making.says(&id, &image, pause).unwrap_or_default();
            assert_eq!(said, format!("c/linux waits for image `debian`{reported}"));
            let other = making.says(&id, &image, "node `pve1`: it is offline");
            assert_eq!(other.is_none(), making.needs_none(), "{making:?}");
        }
    }
}
