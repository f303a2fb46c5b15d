//! The samples of one scrape, and their text in the format that the scraper asks for.

use std::collections::BTreeMap;
use std::fmt;

use actix_web::http::header::HeaderMap;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit as EncodedUnit};

use crate::metric_table::{self as table, Kind, Metric, Only, Unit};

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' own text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0, which Prometheus asks for first.
    OpenMetrics,
}

impl Format {
    /// The format that a scraper prefers by its `Accept`; Prometheus' own where it names none.
    ///
    /// Between the two the higher quality decides, and the first one of equals.
    pub(super) fn wanted(headers: &HeaderMap) -> Self {
        let mut best = (Self::Prometheus, 0.0);
        let accepts = headers.get_all("accept").filter_map(|value| value.to_str().ok());
        for one in accepts.flat_map(|accept| accept.split(',')) {
            let mut parts = one.split(';').map(str::trim);
            let format = match parts.next() {
                Some("application/openmetrics-text") => Self::OpenMetrics,
                Some("text/plain" | "text/*" | "*/*") => Self::Prometheus,
                Some(_) | None => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            let quality = quality.and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// What a series says at the moment.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Number(u64),
    Real(f64),
    Histogram(Histogram),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Number(is.into())
    }
}

/// The labels of one series with their values.
type Labels = Vec<(&'static str, String)>;

/// The samples of one scrape, by the name of their metric.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    samples: BTreeMap<&'static str, Vec<(Labels, Value)>>,
    /// Whether metrics without samples are named, too.
    is_whole: bool,
}

impl Page {
    /// A page of everything, where metrics without samples are named too.
    pub(super) fn whole() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Adds a sample; `values` are those of the metric's labels in their order. A label with a blank value
    /// is left out, which is the same to Prometheus.
    pub(super) fn add(&mut self, metric: &Metric, values: &[&str], value: impl Into<Value>) {
        let labels = metric.labels.iter().zip(values).filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(label, value)| (label.name, (*value).to_owned())).collect();
        self.samples.entry(metric.name).or_default().push((labels, value.into()));
    }

    /// The text of all samples, in the order of the table.
    ///
    /// # Errors
    /// When a sample does not fit its metric's kind.
    pub(super) fn text(self, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        match format {
            Format::Prometheus => prometheus_text::encode(&mut out, &registry)?,
            Format::OpenMetrics => text::encode(&mut out, &registry)?,
        }
        Ok(out)
    }

    /// Each series of a metric, with its labels.
    #[cfg(test)]
    pub(super) fn series(&self, metric: &Metric) -> Vec<Labels> {
        let samples = self.samples.get(metric.name);
        samples.into_iter().flatten().map(|(labels, _)| labels.clone()).collect()
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for metric in table::ALL {
            let samples = self.samples.get(metric.name);
            if samples.is_none() && !(self.is_whole && metric.only == Only::Always) {
                continue;
            }
            let unit = match metric.unit {
                Unit::None => None,
                Unit::Seconds => Some(EncodedUnit::Seconds),
            };
            let (ending, kind) = match metric.kind {
                Kind::Counter => ("_total", MetricType::Counter),
                Kind::Gauge => ("", MetricType::Gauge),
                Kind::Info => ("_info", MetricType::Info),
                Kind::Histogram(_) => ("", MetricType::Histogram),
            };
            // The encoder puts the unit and the ending of the kind behind the name itself.
            let name = metric.name.strip_suffix(ending).unwrap_or(metric.name);
            let bare = unit.as_ref().and_then(|unit| name.strip_suffix(unit.as_str()));
            let name = bare.map_or(name, |name| name.trim_end_matches('_'));
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in samples.into_iter().flatten() {
                match (metric.kind, value) {
                    (Kind::Info, _) => family.encode_info(labels)?,
                    (Kind::Histogram(_), Value::Histogram(histogram)) => {
                        histogram.encode(family.encode_family(labels)?)?;
                    }
                    (Kind::Counter, Value::Number(number)) => {
                        ConstCounter::new(*number).encode(family.encode_family(labels)?)?;
                    }
                    (Kind::Gauge, Value::Number(number)) => {
                        ConstGauge::new(*number).encode(family.encode_family(labels)?)?;
                    }
                    (Kind::Gauge, Value::Real(number)) => {
                        ConstGauge::new(*number).encode(family.encode_family(labels)?)?;
                    }
                    (Kind::Counter | Kind::Gauge, _) | (Kind::Histogram(_), _) => {
                        return Err(fmt::Error);
                    }
                }
            }
        }
        Ok(())
    }
}
