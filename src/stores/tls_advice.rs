//! What a store's certificate that is refused asks for.

use proxmox_client::tls::Advice;

/// Stores have authorities and no pins.
pub(crate) const FOR_A_STORE: Advice = Advice { unpinned: UNTRUSTED, untrusted: UNTRUSTED };

const UNTRUSTED: &str = "name the file with the authority that signed the store's certificate in its \
                         address, as `?caFile=/path/ca.pem`, and the store by a name that its \
                         certificate has";
