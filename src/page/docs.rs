//! Pages of the book, as the binary has them.

use askama::Template;
use drover_api::anchor;
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

use crate::frame::Frame;

/// A page of the book as the list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocsTopic {
    /// Its path without `.md`, such as `ci/gitea`.
    pub topic: String,
    /// Its first heading.
    pub title: String,
}

/// A page of the book.
#[derive(Template)]
#[template(path = "docs.html")]
pub struct DocsPage {
    frame: Frame,
    topics: Vec<DocsTopic>,
    topic: String,
    title: String,
    /// HTML that was made of the page's Markdown; what the Markdown has of HTML itself is left out.
    body: String,
}

impl DocsPage {
    /// The page `topic` with this Markdown.
    pub fn new(frame: Frame, topics: Vec<DocsTopic>, topic: &str, markdown: &str) -> Self {
        let (title, body) = (title(markdown), body(markdown, topic));
        Self { frame, topics, topic: topic.to_owned(), title, body }
    }
}

/// The first heading of a page.
pub(crate) fn title(markdown: &str) -> String {
    let first = markdown.lines().find_map(|line| line.strip_prefix("# "));
    first.unwrap_or("The book").trim().to_owned()
}

impl DocsTopic {
    /// A page of the list.
    pub fn new(topic: &str, markdown: &str) -> Self {
        Self { topic: topic.to_owned(), title: title(markdown) }
    }
}

/// Markdown as HTML: links lead to pages here, headings have names, and HTML within is left out.
fn body(markdown: &str, topic: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    let mut events: Vec<Event<'_>> = Vec::new();
    let mut heading: Option<(usize, String)> = None;
    let mut tables = 0;
    for event in Parser::new_ext(markdown, options) {
        if let Event::Html(text) | Event::InlineHtml(text) = &event {
            events.extend(place(text));
            continue;
        }
        if let Event::Start(Tag::Heading { .. }) = &event {
            heading = Some((events.len(), String::new()));
        } else if let (Event::Text(text) | Event::Code(text), Some((_, words))) =
            (&event, &mut heading)
        {
            words.push_str(text);
        } else if let Event::End(TagEnd::Heading(_)) = &event
            && let Some((place, words)) = heading.take()
            && let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(place)
        {
            *id = Some(CowStr::from(anchor(&words)));
        } else if let Event::Start(Tag::Table(_)) = &event {
            // A table may be wider than a phone.
            tables += 1;
            events.push(Event::Html(CowStr::from(format!(
                "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table {tables}\">",
            ))));
        }
        let ends_table = matches!(event, Event::End(TagEnd::Table));
        events.push(shown(event, topic));
        if ends_table {
            events.push(Event::Html(CowStr::from("</div>")));
        }
    }
    let mut text = String::new();
    html::push_html(&mut text, events.into_iter());
    text
}

/// A part of a page as it is shown here: what it leads to is here, and keys move what is wide.
fn shown<'a>(event: Event<'a>, topic: &str) -> Event<'a> {
    if let Event::Start(Tag::Link { link_type, dest_url, title, id }) = event {
        let dest_url = CowStr::from(link(&dest_url, topic));
        return Event::Start(Tag::Link { link_type, dest_url, title, id });
    }
    if let Event::Start(Tag::Image { link_type, dest_url, title, id }) = event {
        let dest_url = CowStr::from(format!("/docs/{}", near(&dest_url, topic)));
        return Event::Start(Tag::Image { link_type, dest_url, title, id });
    }
    if let Event::Start(Tag::CodeBlock(_)) = event {
        return Event::Html(CowStr::from("<pre tabindex=\"0\"><code>"));
    }
    if let Event::End(TagEnd::CodeBlock) = event {
        return Event::Html(CowStr::from("</code></pre>\n"));
    }
    event
}

/// What a page's own HTML becomes: a place that links lead to, and else nothing.
fn place<'a>(html: &str) -> Option<Event<'a>> {
    let name = html.trim().strip_prefix("<a id=\"")?.split('"').next()?;
    let is_name = name.bytes().all(|one| one.is_ascii_alphanumeric() || one == b'-');
    is_name.then(|| Event::Html(CowStr::from(format!("<a id=\"{name}\"></a>"))))
}

/// Where a link leads: to a page here, where it is one of the book.
fn link(target: &str, topic: &str) -> String {
    if target.starts_with('#') || target.contains("://") {
        return target.to_owned();
    }
    let (path, mark) =
        target.split_once('#').map_or((target, None), |(path, mark)| (path, Some(mark)));
    let mark = mark.map(|mark| format!("#{mark}")).unwrap_or_default();
    match path.strip_suffix(".md") {
        Some(page) => format!("/docs/{}{mark}", near(page, topic)),
        None => format!("/docs/{}{mark}", near(path, topic)),
    }
}

/// A path beside a page.
fn near(path: &str, topic: &str) -> String {
    let mut parts: Vec<&str> = topic.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a link of the book leads to the same place here, and a page brings no HTML of its own.

    #[test]
    fn links_lead_to_pages_here_and_headings_have_their_names() {
        let text = "# The `drover` page\n\n[a](b.md#the-end) [c](../d.md) [e](https://e.org) <b onclick=x>f</b>\n";
        let html = body(text, "ci/gitea");
        assert_eq!(
            html,
            "<h1 id=\"the-drover-page\">The <code>drover</code> page</h1>\n<p><a href=\"/docs/ci/b#the-end\">a</a> \
             <a href=\"/docs/d\">c</a> <a href=\"https://e.org\">e</a> f</p>\n"
        );
        assert_eq!(title(text), "The `drover` page");
    }

    #[test]
    fn a_place_within_a_page_is_kept_and_no_other_html() {
        let html = body(
            "<a id=\"rule-3\"></a>3. a <a id=\"x y\"></a><a id=\"b\" onclick=\"c\">d</a>\n",
            "a",
        );
        assert_eq!(html, "<p><a id=\"rule-3\"></a>3. a <a id=\"b\"></a>d</p>\n");
    }

    #[test]
    fn what_is_wide_can_be_moved_by_keys_and_code_is_no_html() {
        let html = body("```sh\na <b>\n```\n\n| a |\n|---|\n| b |\n", "a");
        assert!(
            html.starts_with("<pre tabindex=\"0\"><code>a &lt;b&gt;\n</code></pre>\n<div"),
            "{html}"
        );
        assert!(html.contains("role=\"region\" aria-label=\"Table 1\"><table>"), "{html}");
    }
}
