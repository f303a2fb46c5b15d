//! What reasons on the page lead to, kept as long as the configuration is the same.

use std::sync::Arc;

use actix_web::web;
use drover_api::{Remedies, Role, TROUBLESHOOTING, ValueOut};
use drover_page::Hints;
use parking_lot::Mutex;

/// The pages of the book by topic.
type Book = Arc<[(&'static str, String)]>;
/// The values in force; the same list until the configuration is another one.
type Values = Arc<dyn Fn() -> Arc<[ValueOut]> + Send + Sync>;

/// The hints of the configuration in force.
#[derive(Default)]
pub(crate) struct KeptHints {
    /// For who sees no values.
    plain: Mutex<Option<Arc<Hints>>>,
    /// With the values that they were made of.
    full: Mutex<Option<(Arc<[ValueOut]>, Arc<Hints>)>>,
}

impl KeptHints {
    /// The hints for a role: values for those alone who may see the configuration.
    pub(crate) async fn of(&self, role: Role, values: &Values, book: &Book) -> Arc<Hints> {
        if role < Role::Operator {
            return self.plain(book);
        }
        let (door, pages, known) = (Arc::clone(values), Arc::clone(book), self.full.lock().clone());
        // The first look after a change of the configuration takes long.
        let made = web::block(move || {
            let values = door();
            known.filter(|(of, _)| Arc::ptr_eq(of, &values)).unwrap_or_else(|| {
                let hints = Arc::new(Hints::of(&values, remedies(&pages)));
                (values, hints)
            })
        });
        match made.await {
            Ok((values, hints)) => {
                *self.full.lock() = Some((values, Arc::clone(&hints)));
                hints
            }
            // The service stops.
            Err(_) => self.plain(book),
        }
    }

    fn plain(&self, book: &Book) -> Arc<Hints> {
        let mut kept = self.plain.lock();
        Arc::clone(kept.get_or_insert_with(|| Arc::new(Hints::of(&[], remedies(book)))))
    }
}

fn remedies(book: &Book) -> Remedies {
    let page = book.iter().find(|(topic, _)| *topic == TROUBLESHOOTING);
    page.map(|(_, text)| Remedies::of(text)).unwrap_or_default()
}
