//! JSON that says nothing twice: an object with the same key two times is refused, at any depth.
//!
//! `serde_json` bounds the depth itself, also for what is read here.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::problem::printable;

/// A value of which no object has a key twice.
pub(super) struct Unrepeated(pub(super) Value);

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Unrepeated(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if values.contains_key(&key) {
                let key = printable(&key);
                return Err(Error::custom(format!("the key `{key}` is there twice")));
            }
            let Unrepeated(value) = object.next_value()?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        serde_json::from_str(text).map(|Unrepeated(value)| value)
    }

    // Invariant: a key that is there twice in one object is named; all else is read as it is.

    #[test]
    fn a_key_that_is_there_twice_is_named_at_any_depth() {
        for (text, key) in [
            (r#"{"labels":["nope"],"labels":["linux"]}"#, "`labels`"),
            (r#"{"a":[{"b":1,"c":null,"b":1}]}"#, "`b`"),
            (r#"{"a":1,"\u0061":2}"#, "`a`"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.is_data() && refused.to_string().contains(key), "{refused}");
        }
        let fine = r#"{"a":[-1,2,0.5,"x",null,true,{"b":{}}],"b":{"a":[]}}"#;
        assert_eq!(read(fine).unwrap(), serde_json::from_str::<Value>(fine).unwrap());
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_err_and(|refused| refused.is_syntax()));
    }
}
