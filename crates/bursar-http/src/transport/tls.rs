//! Whom a client trusts, and what it shows of itself.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::Error;

/// What [`config`] is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsOptions {
    /// Trusted besides the public roots.
    pub(crate) trusted_pem: Vec<Vec<u8>>,
    /// A certificate chain and its key.
    pub(crate) client_pem: Option<Vec<u8>>,
}

/// Which protocols are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocols {
    Either,
    Http1,
    Http2,
}

impl Protocols {
    /// The same configuration, offering these.
    pub(crate) fn offered_by(self, config: &ClientConfig) -> Arc<ClientConfig> {
        let offered: &[&[u8]] = match self {
            Self::Either => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        };
        let mut config = config.clone();
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

pub(crate) fn config(options: &TlsOptions) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for pem in &options.trusted_pem {
        for certificate in certificates("trusted_pem", pem)? {
            roots.add(certificate).map_err(|error| {
                invalid("trusted_pem", "a certificate is unusable").because(error)
            })?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::usage("TLS cannot be set up").because(error))?
        .with_root_certificates(roots);
    match &options.client_pem {
        None => Ok(builder.with_no_client_auth()),
        Some(pem) => {
            let name = "client_certificate_pem";
            let chain = certificates(name, pem)?;
            let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
                invalid(name, "there is no readable private key").because(error)
            })?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| invalid(name, "certificate and key do not fit").because(error))
        }
    }
}

fn certificates(option: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(option, "this is not PEM").because(error))?;
    if found.is_empty() {
        return Err(invalid(option, "there is no certificate"));
    }
    Ok(found)
}

fn invalid(option: &str, what: &str) -> Error {
    Error::usage(format!("option `{option}`: {what}"))
}
