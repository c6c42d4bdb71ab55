//! Security policies (Part 7, 6.6): which algorithms protect a channel or a password.

use rustls::pki_types::SignatureVerificationAlgorithm;

/// A security policy that is spoken. Those before 2017 are not: they are known to be weak, and the
/// specification withdrew them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Policy {
    // In the order in which a client prefers them, the best last.
    Basic256Sha256,
    Aes128Sha256RsaOaep,
    Aes256Sha256RsaPss,
}

impl Policy {
    pub(crate) const ALL: [Policy; 3] = [
        Policy::Basic256Sha256,
        Policy::Aes128Sha256RsaOaep,
        Policy::Aes256Sha256RsaPss,
    ];

    /// The policy of this name, if it is spoken.
    pub(crate) fn of(uri: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.uri() == uri)
    }

    /// Its name.
    pub(crate) fn uri(self) -> &'static str {
        match self {
            Policy::Basic256Sha256 => "http://opcfoundation.org/UA/SecurityPolicy#Basic256Sha256",
            Policy::Aes128Sha256RsaOaep => {
                "http://opcfoundation.org/UA/SecurityPolicy#Aes128_Sha256_RsaOaep"
            }
            Policy::Aes256Sha256RsaPss => {
                "http://opcfoundation.org/UA/SecurityPolicy#Aes256_Sha256_RsaPss"
            }
        }
    }

    /// The name of what signs with a key.
    pub(crate) fn signing_uri(self) -> &'static str {
        match self.signs_with_salt() {
            true => "http://opcfoundation.org/UA/security/rsa-pss-sha2-256",
            false => "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256",
        }
    }

    /// The name of what encrypts to a key.
    pub(crate) fn sealing_uri(self) -> &'static str {
        match self.oaep() {
            Oaep::Sha1 => "http://www.w3.org/2001/04/xmlenc#rsa-oaep",
            Oaep::Sha256 => "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256",
        }
    }

    /// The hash within what is encrypted to a key.
    pub(crate) fn oaep(self) -> Oaep {
        match self {
            Policy::Basic256Sha256 | Policy::Aes128Sha256RsaOaep => Oaep::Sha1,
            Policy::Aes256Sha256RsaPss => Oaep::Sha256,
        }
    }

    /// Bytes of the key that encrypts a channel's messages.
    pub(crate) fn cipher_key_bytes(self) -> usize {
        match self {
            Policy::Aes128Sha256RsaOaep => 16,
            Policy::Basic256Sha256 | Policy::Aes256Sha256RsaPss => 32,
        }
    }

    /// How a message is signed with a key.
    pub(crate) fn signing(self) -> &'static dyn ring::signature::RsaEncoding {
        match self.signs_with_salt() {
            true => &ring::signature::RSA_PSS_SHA256,
            false => &ring::signature::RSA_PKCS1_SHA256,
        }
    }

    /// How a signature is checked.
    pub(crate) fn checking(self) -> &'static dyn SignatureVerificationAlgorithm {
        match self.signs_with_salt() {
            true => webpki::ring::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
            false => webpki::ring::RSA_PKCS1_2048_8192_SHA256,
        }
    }

    fn signs_with_salt(self) -> bool {
        self == Policy::Aes256Sha256RsaPss
    }
}

/// The hash of OAEP, which encrypts a few bytes to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Oaep {
    Sha1,
    Sha256,
}

impl Oaep {
    /// Bytes of a block that are not content.
    pub(crate) fn overhead(self) -> usize {
        match self {
            Oaep::Sha1 => 2 * 20 + 2,
            Oaep::Sha256 => 2 * 32 + 2,
        }
    }
}
