//! What lies beside a journal in an object store.

use drover_vault::{Entry, Register, StoreError, Vault, Version};

use super::ObjectAddress;
use super::gateway::{CallError, Created, Gateway, Limits, Stamp};
use super::layout::unique;

/// Where the things of a vault are.
const BESIDE: &str = "beside";
/// Where the entries of a register are.
const REGISTER: &str = "register";
/// How many bytes of an entry are the name of the write: no two writes have the same bytes then, and
/// no two the same ETag.
const NAME_BYTES: usize = 32;

type Fault = Box<dyn std::error::Error + Send + Sync>;

/// A vault beneath the prefix of a journal. What it holds is as readable as the bucket.
pub struct ObjectVault {
    gateway: Gateway,
}

impl ObjectVault {
    /// Prepares the requests; connects at the first one.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn new(address: &ObjectAddress) -> Result<Self, Fault> {
        Ok(Self { gateway: Gateway::new(address)? })
    }
}

impl Vault for ObjectVault {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.gateway.get(&beside(name)).map_err(|error| fault(name, "read", error))?;
        Ok(found.map(|(bytes, _)| bytes.to_vec()))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let put = self.gateway.overwrite(&beside(name), bytes.to_vec().into());
        put.map_err(|error| fault(name, "written", error))
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        let removed = self.gateway.delete(&[beside(name)]);
        removed.map_err(|error| fault(name, "removed", error))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let (within, listed) = (beside(folder), self.gateway.list(&beside(folder), None));
        let listed = listed.map_err(|error| fault(folder, "listed", error))?.into_iter();
        let names = listed.filter_map(|(name, _)| {
            Some(name.strip_prefix(&within)?.strip_prefix('/')?.to_owned())
        });
        Ok(names.collect())
    }
}

/// A register beneath the prefix of a journal.
pub struct ObjectRegister {
    gateway: Gateway,
}

impl ObjectRegister {
    /// Prepares the requests, and makes sure that the store keeps conditions.
    ///
    /// # Errors
    /// When the address cannot be used, or the store ignores conditions.
    pub fn open(address: &ObjectAddress) -> Result<Self, Fault> {
        let gateway = Gateway::new(address)?;
        super::probe::probe(&gateway)?;
        Ok(Self { gateway })
    }

    /// The same for those who lead or stand by: requests are given up earlier.
    ///
    /// # Errors
    /// As [`ObjectRegister::open`].
    pub fn open_to_lead(address: &ObjectAddress) -> Result<Self, Fault> {
        super::probe::probe(&Gateway::new(address)?)?;
        Self::limited(address)
    }

    pub(super) fn limited(address: &ObjectAddress) -> Result<Self, Fault> {
        Ok(Self { gateway: Gateway::limited(address, Limits::REGISTER)? })
    }

    /// Prepares the requests of those who only read: the store is not tried.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn to_read(address: &ObjectAddress) -> Result<Self, Fault> {
        Ok(Self { gateway: Gateway::new(address)? })
    }
}

impl Register for ObjectRegister {
    fn place(&self) -> String {
        self.gateway.place().to_owned()
    }

    fn read(&self, name: &str) -> Result<Option<Entry>, StoreError> {
        let object = register(name);
        let found = self.gateway.get(&object).map_err(|error| fault(name, "read", error))?;
        let Some((bytes, stamp)) = found else { return Ok(None) };
        // What somebody put there that is no entry is for those who know what it should hold: they say what is
        // wrong with it, and can replace it.
        let held = bytes.get(NAME_BYTES..).unwrap_or(&bytes);
        Ok(Some(Entry { bytes: held.to_vec(), version: version(&stamp) }))
    }

    fn write(
        &self,
        name: &str,
        before: Option<&Version>,
        bytes: &[u8],
    ) -> Result<Option<Version>, StoreError> {
        let object = register(name);
        let bytes = bytes::Bytes::from([unique().as_bytes(), bytes].concat());
        let failed = |error| fault(name, "written", error);
        let Some(before) = before else {
            return match self.gateway.create(&object, bytes).map_err(failed)? {
                Created::Done(stamp) => Ok(Some(version(&stamp))),
                Created::Taken => Ok(None),
            };
        };
        // What is no version of this register is that of no entry.
        let Some(before) = stamp(before) else { return Ok(None) };
        let written = self.gateway.update(&object, &before, bytes).map_err(failed)?;
        Ok(written.map(|stamp| version(&stamp)))
    }
}

fn beside(name: &str) -> String {
    format!("{BESIDE}/{name}")
}

fn register(name: &str) -> String {
    format!("{REGISTER}/{name}")
}

/// A stamp as text: the ETag, and behind a space the generation where there is one.
fn version(stamp: &Stamp) -> Version {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Version(format!("{} {}", text(&stamp.e_tag), text(&stamp.version)))
}

fn stamp(version: &Version) -> Option<Stamp> {
    let (e_tag, version) = version.0.split_once(' ')?;
    let part = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Some(Stamp { e_tag: part(e_tag), version: part(version) })
}

fn fault(name: &str, doing: &'static str, error: CallError) -> StoreError {
    match error {
        CallError::Unknown(text) => {
            StoreError::Unknown { name: name.to_owned(), doing, source: text.into() }
        }
        CallError::Refused(_) | CallError::Conflict => StoreError::refused(name, doing, error),
    }
}
