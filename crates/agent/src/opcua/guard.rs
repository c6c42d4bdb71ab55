//! What protects a channel's chunks: signatures and encryption (Part 6, 6.7).
//!
//! The messages that open a channel are signed with one side's key and encrypted to the other's;
//! what they carry are nonces, and keys for all that follows are derived from both sides' nonces.
//! A chunk's length counts among what is signed, so it is known before.

use std::sync::Arc;

use aes::cipher::generic_array::GenericArray;
use aes::cipher::{BlockCipher, BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use aes::{Aes128, Aes256};
use ring::hmac;

use super::Fault;
use super::frame::{HEAD_BYTES, Head, SEQUENCE_HEAD_BYTES, WAY_BYTES, chunk_head};
use super::identity::{Certificate, Identity, NONCE_BYTES};
use super::policy::Policy;
use super::wire::{Damaged, Reader};
use super::writer::Writer;

/// One side's protection of a channel: it seals what this side sends, and opens what comes.
pub(crate) struct Guard {
    pub(crate) policy: Policy,
    pub(crate) identity: Arc<Identity>,
    pub(crate) peer: Certificate,
    keys: Option<Keys>,
    /// The number of the peer's last chunk: none is taken twice.
    last: Option<u32>,
}

struct Keys {
    own: Side,
    peer: Side,
}

/// What one side signs and encrypts with.
struct Side {
    signing: hmac::Key,
    cipher: Vec<u8>,
    start: [u8; BLOCK_BYTES],
}

impl Guard {
    pub(crate) fn new(policy: Policy, identity: Arc<Identity>, peer: Certificate) -> Self {
        Guard {
            policy,
            identity,
            peer,
            keys: None,
            last: None,
        }
    }

    /// Derives the keys of all messages that follow.
    ///
    /// # Errors
    /// When the peer's nonce is too short to be one.
    pub(crate) fn derive(&mut self, own_nonce: &[u8], peer_nonce: &[u8]) -> Result<(), Damaged> {
        if peer_nonce.len() < NONCE_BYTES {
            return Err(Damaged("the server's nonce is too short"));
        }
        self.keys = Some(Keys {
            own: Side::derived(self.policy, peer_nonce, own_nonce),
            peer: Side::derived(self.policy, own_nonce, peer_nonce),
        });
        Ok(())
    }

    /// The chunk that opens a channel; `rest` is sequence, request and message.
    pub(crate) fn seal_opening(&self, channel: u32, rest: &[u8]) -> Result<Vec<u8>, Fault> {
        let block = self.peer.key_bytes();
        let room = block - self.policy.oaep().overhead();
        let signature_bytes = self.identity.certificate.key_bytes();
        let content = padded(rest, room, signature_bytes, block > LARGE_KEY_BYTES);
        self.seal_opening_padded(channel, content)
    }

    /// The same with what is padded already.
    pub(super) fn seal_opening_padded(
        &self,
        channel: u32,
        content: Vec<u8>,
    ) -> Result<Vec<u8>, Fault> {
        let mut clear = Writer::default();
        clear.u32(channel);
        clear.text(self.policy.uri());
        clear.bytes(self.identity.certificate.der());
        clear.bytes(&self.peer.thumbprint());
        let clear = clear.into_bytes();
        let oaep = self.policy.oaep();
        let block = self.peer.key_bytes();
        let room = block - oaep.overhead();
        let signature_bytes = self.identity.certificate.key_bytes();
        let blocks = (content.len() + signature_bytes).div_ceil(room);
        let mut chunk = chunk_head(*b"OPN", b'F', clear.len() + blocks * block);
        chunk.extend(clear);
        let clear_bytes = chunk.len();
        chunk.extend(content);
        let signature = self.identity.sign(self.policy, &chunk);
        let mut content = chunk.split_off(clear_bytes);
        content.extend(signature);
        let sealed = self.peer.seal(oaep, &content);
        let sealed = sealed.map_err(|error| {
            Fault::Link(format!(
                "nothing can be encrypted to the server's key: {error}"
            ))
        })?;
        chunk.extend(sealed);
        Ok(chunk)
    }

    /// What such a chunk of the peer's carries behind its request.
    pub(crate) fn open_opening(&mut self, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut from = Reader::new(body);
        from.u32()?;
        if from.text()? != self.policy.uri() {
            return Err(Damaged("the channel has another policy than was asked for").into());
        }
        let sender = from.bytes()?.unwrap_or_default();
        // Whether its issuers come along again is the server's choice.
        if !sender.starts_with(self.peer.der()) {
            return Err(Damaged("another certificate opens the channel").into());
        }
        if from.bytes()? != Some(&self.identity.certificate.thumbprint()[..]) {
            return Err(Damaged("it is encrypted to another certificate").into());
        }
        let sealed = from.rest();
        let clear_bytes = body.len() - sealed.len();
        let content = self.identity.open(self.policy.oaep(), sealed);
        let mut content = content.ok_or(FORGED)?;
        let signature_bytes = self.peer.key_bytes();
        let signed_bytes = content.len().checked_sub(signature_bytes).ok_or(FORGED)?;
        let signature = content.split_off(signed_bytes);
        let mut signed = chunk_head(*b"OPN", b'F', body.len());
        signed.extend_from_slice(&body[..clear_bytes]);
        signed.extend_from_slice(&content);
        if !self.peer.has_signed(self.policy, &signed, &signature) {
            return Err(FORGED.into());
        }
        let is_large = self.identity.certificate.key_bytes() > LARGE_KEY_BYTES;
        unpad(&mut content, is_large)?;
        let mut from = Reader::new(&content);
        self.follow(from.u32()?)?;
        from.u32()?;
        Ok(from.rest().to_vec())
    }

    /// Bytes of a message that one chunk of so many has room for.
    pub(crate) fn room(&self, chunk_bytes: usize) -> usize {
        let sealed = (chunk_bytes - HEAD_BYTES - WAY_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        sealed - SEQUENCE_HEAD_BYTES - 1 - SIGNATURE_BYTES
    }

    /// A chunk of a message; `way` is channel and token, `rest` sequence, request and the part.
    pub(crate) fn seal(&self, letters: [u8; 3], part: u8, way: &[u8], rest: &[u8]) -> Vec<u8> {
        let content = padded(rest, BLOCK_BYTES, SIGNATURE_BYTES, false);
        self.seal_padded(letters, part, way, &content)
    }

    /// The same with what is padded already to whole blocks.
    pub(super) fn seal_padded(
        &self,
        letters: [u8; 3],
        part: u8,
        way: &[u8],
        content: &[u8],
    ) -> Vec<u8> {
        let side = &self.keys.as_ref().expect("the channel is open").own;
        let body_bytes = way.len() + content.len() + SIGNATURE_BYTES;
        let mut chunk = chunk_head(letters, part, body_bytes);
        chunk.extend_from_slice(way);
        let clear_bytes = chunk.len();
        chunk.extend_from_slice(content);
        let signature = hmac::sign(&side.signing, &chunk);
        chunk.extend_from_slice(signature.as_ref());
        side.encrypt(&mut chunk[clear_bytes..]);
        chunk
    }

    /// What a chunk of the peer's carries: channel, token, sequence, request and the part.
    pub(crate) fn open(&mut self, head: &Head, body: &[u8]) -> Result<Vec<u8>, Fault> {
        let side = &self.keys.as_ref().expect("the channel is open").peer;
        let sealed_bytes = body.len().checked_sub(WAY_BYTES).ok_or(FORGED)?;
        if sealed_bytes % BLOCK_BYTES != 0 || sealed_bytes < SIGNATURE_BYTES {
            return Err(FORGED.into());
        }
        let mut signed = chunk_head(head.letters, head.part(), body.len());
        signed.extend_from_slice(body);
        side.decrypt(&mut signed[HEAD_BYTES + WAY_BYTES..]);
        let signature = signed.split_off(signed.len() - SIGNATURE_BYTES);
        hmac::verify(&side.signing, &signed, &signature).map_err(|_| FORGED)?;
        let mut content = signed.split_off(HEAD_BYTES);
        unpad(&mut content, false)?;
        let mut from = Reader::new(&content);
        from.u32()?;
        from.u32()?;
        let sequence = from.u32()?;
        self.follow(sequence)?;
        Ok(content)
    }

    /// Takes a chunk's number: the one after the last, or a low one after the highest.
    fn follow(&mut self, sequence: u32) -> Result<(), Damaged> {
        let is_next = self.last.is_none_or(|last| {
            last.checked_add(1) == Some(sequence)
                || (last > u32::MAX - SEQUENCE_TURN && sequence < SEQUENCE_TURN)
        });
        if !is_next {
            return Err(Damaged("a chunk is out of order"));
        }
        self.last = Some(sequence);
        Ok(())
    }
}

impl Side {
    /// The keys of the side whose nonce is `seed`.
    fn derived(policy: Policy, secret: &[u8], seed: &[u8]) -> Side {
        let cipher_bytes = policy.cipher_key_bytes();
        let mut material = expanded(secret, seed, SIGNATURE_BYTES + cipher_bytes + BLOCK_BYTES);
        let start = material.split_off(SIGNATURE_BYTES + cipher_bytes);
        let cipher = material.split_off(SIGNATURE_BYTES);
        Side {
            signing: hmac::Key::new(hmac::HMAC_SHA256, &material),
            cipher,
            start: start.try_into().expect("a block is left"),
        }
    }

    fn encrypt(&self, content: &mut [u8]) {
        match self.cipher.len() {
            SHORT_KEY_BYTES => self.encrypt_with::<Aes128>(content),
            _ => self.encrypt_with::<Aes256>(content),
        }
    }

    fn decrypt(&self, content: &mut [u8]) {
        match self.cipher.len() {
            SHORT_KEY_BYTES => self.decrypt_with::<Aes128>(content),
            _ => self.decrypt_with::<Aes256>(content),
        }
    }

    fn encrypt_with<C: BlockCipher + BlockEncryptMut>(&self, content: &mut [u8])
    where
        cbc::Encryptor<C>: KeyIvInit + BlockEncryptMut,
    {
        let cipher = cbc::Encryptor::<C>::new_from_slices(&self.cipher, &self.start);
        let mut cipher = cipher.expect(LENGTHS_FIT);
        for block in content.chunks_exact_mut(BLOCK_BYTES) {
            cipher.encrypt_block_mut(GenericArray::from_mut_slice(block));
        }
    }

    fn decrypt_with<C: BlockCipher + BlockDecryptMut>(&self, content: &mut [u8])
    where
        cbc::Decryptor<C>: KeyIvInit + BlockDecryptMut,
    {
        let cipher = cbc::Decryptor::<C>::new_from_slices(&self.cipher, &self.start);
        let mut cipher = cipher.expect(LENGTHS_FIT);
        for block in content.chunks_exact_mut(BLOCK_BYTES) {
            cipher.decrypt_block_mut(GenericArray::from_mut_slice(block));
        }
    }
}

/// As many bytes as are wanted of two nonces (TLS 1.2's P_SHA256).
fn expanded(secret: &[u8], seed: &[u8], bytes: usize) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut material = Vec::new();
    let mut link = hmac::sign(&key, seed);
    while material.len() < bytes {
        let part = [link.as_ref(), seed].concat();
        material.extend_from_slice(hmac::sign(&key, &part).as_ref());
        link = hmac::sign(&key, link.as_ref());
    }
    material.truncate(bytes);
    material
}

/// What is signed and then encrypted in blocks of `room`: content, and as much padding as makes it
/// and the signature behind it whole blocks. Padding tells its length in each of its bytes; where
/// blocks can be longer than a byte tells, the upper half of that stands at the end.
pub(super) fn padded(
    content: &[u8],
    room: usize,
    signature_bytes: usize,
    is_large: bool,
) -> Vec<u8> {
    let told = 1 + usize::from(is_large);
    let bytes = content.len() + told + signature_bytes;
    let padding = bytes.next_multiple_of(room) - bytes;
    let [low, high, ..] = padding.to_le_bytes();
    let mut padded = Vec::with_capacity(content.len() + told + padding);
    padded.extend_from_slice(content);
    padded.resize(content.len() + 1 + padding, low);
    if is_large {
        padded.push(high);
    }
    padded
}

/// Takes padding away; who signed the content wrote it.
fn unpad(content: &mut Vec<u8>, is_large: bool) -> Result<(), Damaged> {
    let high = match is_large {
        true => content.pop().ok_or(FORGED)?,
        false => 0,
    };
    let low = *content.last().ok_or(FORGED)?;
    let padding = usize::from(u16::from_le_bytes([low, high]));
    let kept = content.len().checked_sub(padding + 1).ok_or(FORGED)?;
    content.truncate(kept);
    Ok(())
}

/// One answer for all that was changed on its way: whoever tries learns nothing.
const FORGED: Damaged = Damaged("it is not what the server signed");

const LENGTHS_FIT: &str = "the lengths are the policy's";

/// Bytes of a block of what encrypts a channel's messages.
pub(super) const BLOCK_BYTES: usize = 16;
const SHORT_KEY_BYTES: usize = 16;

/// Bytes of a message's signature, and of the key that makes it, in all policies that are spoken.
const SIGNATURE_BYTES: usize = 32;

/// Blocks of longer keys can be padded with more than a byte tells.
const LARGE_KEY_BYTES: usize = 256;

/// How far from the highest number a sequence may begin anew, and how far from the lowest.
const SEQUENCE_TURN: u32 = 1_024;
