//! The field names of a request, taken from its type.

use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The names of a struct's fields in JSON, in the order of the struct. None for anything that is not a
/// struct.
pub fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // The reader ends the reading as soon as it knows the names.
    let _ = T::deserialize(NameReader(&mut names));
    names
}

struct NameReader<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for NameReader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("the names are known"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LimitsIn, Nothing, ResyncIn};

    // Invariant: the names are those in JSON, in the order of the struct.

    #[test]
    fn a_request_names_its_fields_as_callers_spell_them() {
        assert_eq!(fields_of::<ResyncIn>(), ["confirmOlderJournal", "confirmMachine"]);
        assert_eq!(fields_of::<LimitsIn>(), ["idleTerminationMinutes", "maxTotalUses"]);
        assert!(fields_of::<Nothing>().is_empty() && fields_of::<u32>().is_empty());
    }
}
