//! A node's XML, as `createItem` reads it.
//!
//! It follows Jenkins 2.579 at ff9430ee1dc6: the fields of `hudson/model/Slave.java` and
//! `hudson/slaves/JNLPLauncher.java`, and `jenkins/model/Jenkins.java`, by which a `slave` is a `DumbSlave`; of
//! the SSH launcher the fields of ssh-slaves 3. It is stricter in this: an element that nobody reads is refused,
//! where XStream leaves it out, and one that is missing.

struct Element {
    name: String,
    class: Option<String>,
    text: String,
    children: Vec<Self>,
}

/// What an element must be.
enum Kind {
    Text,
    Any,
    /// A number above 0.
    Number,
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Nothing at all, of this class where there is one.
    Nothing(Option<&'static str>),
    /// Elements, of one of these classes.
    One(&'static [Class]),
}

/// A class, and the elements that it has.
struct Class {
    name: &'static str,
    elements: &'static [(&'static str, Kind)],
    /// Those that it may have beside them.
    more: &'static [(&'static str, Kind)],
}

const SLAVE: Class = Class {
    name: "",
    elements: &[
        ("name", Kind::Text),
        ("description", Kind::Any),
        ("remoteFS", Kind::Text),
        ("numExecutors", Kind::Number),
        ("mode", Kind::Word(&["NORMAL", "EXCLUSIVE"])),
        ("retentionStrategy", Kind::Nothing(Some("hudson.slaves.RetentionStrategy$Always"))),
        ("launcher", Kind::One(&[INBOUND, SSH])),
        ("label", Kind::Any),
        ("nodeProperties", Kind::Nothing(None)),
    ],
    more: &[],
};

const INBOUND: Class = Class {
    name: "hudson.slaves.JNLPLauncher",
    elements: &[("webSocket", Kind::Boolean)],
    more: &[("tunnel", Kind::Text)],
};

const SSH: Class = Class {
    name: "hudson.plugins.sshslaves.SSHLauncher",
    elements: &[
        ("host", Kind::Text),
        ("port", Kind::Number),
        ("credentialsId", Kind::Text),
        ("jvmOptions", Kind::Any),
        ("javaPath", Kind::Any),
        ("launchTimeoutSeconds", Kind::Number),
        ("maxNumRetries", Kind::Number),
        ("retryWaitTime", Kind::Number),
        ("sshHostKeyVerificationStrategy", Kind::One(&[MANUAL])),
        ("tcpNoDelay", Kind::Boolean),
    ],
    more: &[("prefixStartSlaveCmd", Kind::Any), ("suffixStartSlaveCmd", Kind::Any)],
};

const MANUAL: Class = Class {
    name: "hudson.plugins.sshslaves.verifiers.ManuallyProvidedKeyVerificationStrategy",
    elements: &[("key", Kind::One(&[KEY]))],
    more: &[],
};

const KEY: Class =
    Class { name: "", elements: &[("algorithm", Kind::Text), ("key", Kind::Text)], more: &[] };

/// Text without its references; none where XML does not have them, or one of its characters.
fn plain(text: &str) -> Option<String> {
    let mut parts = text.split('&');
    let mut out = parts.next()?.to_owned();
    for part in parts {
        let (name, rest) = part.split_once(';')?;
        out += match name {
            "amp" => "&",
            "lt" => "<",
            "gt" => ">",
            "quot" => "\"",
            "apos" => "'",
            _ => return None,
        };
        out += rest;
    }
    let is_text = out.chars().all(|ch| !ch.is_control() || matches!(ch, '\t' | '\n' | '\r'));
    is_text.then_some(out)
}

/// One element, and what follows it; none where it is not well-formed.
fn element(text: &str) -> Option<(Element, &str)> {
    let rest = text.strip_prefix('<')?;
    let end = rest.find(|ch: char| !ch.is_ascii_alphanumeric())?;
    let (name, mut rest) = rest.split_at(end);
    let mut class = None;
    if let Some(after) = rest.strip_prefix(" class=\"") {
        let (value, after) = after.split_once('"')?;
        (class, rest) = (Some(plain(value)?), after);
    }
    let (text, children) = (String::new(), Vec::new());
    let mut found = Element { name: name.to_owned(), class, text, children };
    if let Some(after) = rest.strip_prefix("/>") {
        return Some((found, after));
    }
    rest = rest.strip_prefix('>')?;
    loop {
        let (text, after) = rest.split_at(rest.find('<')?);
        found.text += &plain(text)?;
        if let Some(after) = after.strip_prefix("</") {
            let (closed, after) = after.split_once('>')?;
            return (closed == name && !name.is_empty()).then_some((found, after));
        }
        let (child, after) = element(after)?;
        found.children.push(child);
        rest = after;
    }
}

impl Kind {
    /// What is wrong with an element.
    fn faults(&self, of: &Element, faults: &mut Vec<String>) {
        let (text, class) = (of.text.as_str(), of.class.as_deref());
        let is_plain = class.is_none() && of.children.is_empty();
        let well = match self {
            Self::One(classes) => {
                let class = class.unwrap_or_default();
                let known = classes.iter().find(|known| known.name == class);
                if let Some(known) = known.filter(|_| text.trim().is_empty()) {
                    return known.faults(of, faults);
                }
                false
            }
            Self::Nothing(name) => class == *name && text.is_empty() && of.children.is_empty(),
            Self::Text => is_plain && !text.is_empty(),
            Self::Any => is_plain,
            Self::Number => is_plain && text.parse::<u32>().is_ok_and(|number| number > 0),
            Self::Boolean => is_plain && matches!(text, "true" | "false"),
            Self::Word(words) => is_plain && words.contains(&text),
        };
        if !well {
            faults.push(format!("`{}` cannot be `{text}` of class {class:?}", of.name));
        }
    }
}

impl Class {
    fn faults(&self, of: &Element, faults: &mut Vec<String>) {
        for (name, _) in self.elements {
            let count = of.children.iter().filter(|child| child.name == *name).count();
            if count != 1 {
                faults.push(format!("`{}` has {count} of `{name}`", of.name));
            }
        }
        for child in &of.children {
            let mut known = self.elements.iter().chain(self.more);
            match known.find(|(name, _)| *name == child.name) {
                Some((_, kind)) => kind.faults(child, faults),
                None => faults.push(format!("nobody reads `{}` of `{}`", child.name, of.name)),
            }
        }
    }
}

/// What is wrong with a node's XML; nothing with one that a node can be made of.
pub fn faults(xml: &str) -> Vec<String> {
    let body = match xml.strip_prefix("<?xml ").and_then(|rest| rest.split_once("?>")) {
        Some((_, body)) => body,
        None => xml,
    };
    let mut faults = Vec::new();
    match element(body) {
        Some((root, "")) if root.name == "slave" && root.class.is_none() => {
            SLAVE.faults(&root, &mut faults);
        }
        Some((root, rest)) => faults.push(format!("`{}` is no node, with `{rest}`", root.name)),
        None => faults.push("it is not well-formed".to_owned()),
    }
    faults
}

// Invariant: what no node is made of is found.

#[test]
fn xml_that_no_node_is_made_of_is_refused() {
    let node = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><slave><name>n</name><description>a &amp; b\
        </description><remoteFS>/home/ci</remoteFS><numExecutors>1</numExecutors><mode>NORMAL</mode>\
        <retentionStrategy class=\"hudson.slaves.RetentionStrategy$Always\"/>\
        <launcher class=\"hudson.slaves.JNLPLauncher\"><webSocket>true</webSocket></launcher>\
        <label>linux</label><nodeProperties/></slave>";
    assert_eq!(faults(node), Vec::<String>::new());
    let wrong = [
        ("<slave>", "<node>"),
        ("</slave>", "</slave><slave/>"),
        ("a &amp; b", "a & b"),
        ("a &amp; b", "a &nbsp; b"),
        ("/home/ci", ""),
        (">1<", ">0<"),
        (">1<", ">one<"),
        ("NORMAL", "normal"),
        ("Strategy$Always", "Strategy"),
        ("JNLPLauncher", "CommandLauncher"),
        ("true", "yes"),
        ("<webSocket>true</webSocket>", ""),
        ("<label>linux</label>", "<labels>linux</labels>"),
        ("<nodeProperties/>", "<nodeProperties>none</nodeProperties>"),
    ];
    for (from, to) in wrong {
        assert!(!faults(&node.replacen(from, to, 1)).is_empty(), "{from} as {to}");
    }
}
