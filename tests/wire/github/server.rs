//! A small HTTP server on loopback, a thread for each connection.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::Value;

/// What is asked.
pub struct Request {
    pub method: String,
    /// Without its query.
    pub path: String,
    pub query: String,
    /// By names in small letters.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// A value of the query.
    pub fn asked(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(known, _)| *known == name)?.1;
        Some(percent_encoding::percent_decode_str(value).decode_utf8().unwrap().into_owned())
    }
}

/// What is answered; status 0 ends the connection without a word.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn json(status: u16, value: &Value) -> Self {
        let body = if status == 204 || status == 304 { String::new() } else { value.to_string() };
        Self { status, headers: Vec::new(), body }
    }
}

/// Serves until the process ends; gives the port.
pub fn serve(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(request) = read(&mut reader) {
                    let reply = answer(&request);
                    if reply.status == 0 || write(&stream, &reply).is_none() {
                        break;
                    }
                }
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    let mut next = |line: &mut String| {
        line.clear();
        reader.read_line(line).ok().filter(|length| *length > 0).map(|_| line.trim_end().to_owned())
    };
    let first = next(&mut line)?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut headers = BTreeMap::new();
    loop {
        let header = next(&mut line)?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), headers, body })
}

fn write(mut stream: &TcpStream, reply: &Reply) -> Option<()> {
    let mut text = format!("HTTP/1.1 {} -\r\n", reply.status);
    for (name, value) in &reply.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !matches!(reply.status, 204 | 304) {
        text.push_str(&format!("Content-Length: {}\r\n", reply.body.len()));
    }
    text.push_str(&format!("\r\n{}", reply.body));
    stream.write_all(text.as_bytes()).ok()
}
