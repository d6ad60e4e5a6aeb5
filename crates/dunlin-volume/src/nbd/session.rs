//! The server's side of the protocol with one client, over bytes: takes its input, and produces the output.
//!
//! The input is untrusted. Anything that is not NBD ends the session; a valid request that cannot be executed is
//! answered by an error.

use super::wire::{
    command, errno, info, option, reply, Numbers, FIXED_NEWSTYLE, IHAVEOPT, NBDMAGIC, NO_ZEROES,
    OPTION_REPLY, REQUEST, SIMPLE_REPLY, TRANSMISSION,
};
use crate::client::{LONGEST_REQUEST, LONGEST_TRIM};
use crate::types::{BLOCK_BYTES, LONGEST_NAME};

/// Maximum length of an option's data: a name, and more kinds of information than exist.
const LONGEST_OPTION: u32 = 4096;
/// Maximum number of options in one handshake: a client that sends more is not trying to begin.
const MOST_OPTIONS: u32 = 64;
/// The preferred request size.
const PREFERRED_BYTES: u32 = BLOCK_BYTES as u32;
const REQUEST_BYTES: usize = 28;

/// The exported volume.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub(super) name: String,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waiting for the client's flags.
    Flags,
    /// Negotiating options, with the number so far.
    Options(u32),
    Transmission,
}

/// The operation that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want<'a> {
    Read(u64),
    Write(&'a [u8]),
    Zeros(u64),
}

/// A request, with the client's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) want: Want<'a>,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'a> {
    /// This many bytes of the input have been consumed.
    Took(usize),
    /// A request, and its length in the input.
    Asked(Asked<'a>, usize),
    /// More bytes are needed, this many in total.
    More(usize),
    /// The session is over.
    End,
}

/// A session; see the module's documentation.
#[derive(Debug)]
pub(super) struct Session {
    exported: Exported,
    stage: Stage,
    no_zeroes: bool,
    /// The output to be sent.
    pub(super) out: Vec<u8>,
}

impl Session {
    pub(super) fn new(exported: Exported) -> Self {
        let mut out = Vec::new();
        out.extend_from_slice(&NBDMAGIC.to_be_bytes());
        out.extend_from_slice(&IHAVEOPT.to_be_bytes());
        out.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Self {
            exported,
            stage: Stage::Flags,
            no_zeroes: false,
            out,
        }
    }

    /// Whether the handshake is complete.
    pub(super) fn is_in_transmission(&self) -> bool {
        self.stage == Stage::Transmission
    }

    /// Handles the start of the received bytes.
    pub(super) fn next<'a>(&mut self, input: &'a [u8]) -> Next<'a> {
        match self.stage {
            Stage::Flags => self.flags(input),
            Stage::Options(MOST_OPTIONS) => Next::End,
            Stage::Options(count) => self.option(input, count),
            Stage::Transmission => self.request(input),
        }
    }

    fn flags(&mut self, input: &[u8]) -> Next<'static> {
        let Some(flags) = Numbers(input).u32() else {
            return Next::More(4);
        };
        let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
        if flags & !known != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
            return Next::End;
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.stage = Stage::Options(0);
        Next::Took(4)
    }

    fn option(&mut self, input: &[u8], count: u32) -> Next<'static> {
        let mut numbers = Numbers(input);
        let head = (numbers.u64(), numbers.u32(), numbers.u32());
        let (Some(magic), Some(option), Some(length)) = head else {
            return Next::More(16);
        };
        if magic != IHAVEOPT {
            return Next::End;
        }
        if length > LONGEST_OPTION {
            self.reply(option, reply::ERR_TOO_BIG, &[]);
            return Next::End;
        }
        let all = 16 + length as usize;
        let Some(data) = numbers.bytes(length as usize) else {
            return Next::More(all);
        };
        self.stage = Stage::Options(count + 1);
        match option {
            option::EXPORT_NAME => {
                if !self.is_exported(data) {
                    // There is no reply for this error.
                    return Next::End;
                }
                self.out
                    .extend_from_slice(&self.exported.bytes.to_be_bytes());
                self.out.extend_from_slice(&TRANSMISSION.to_be_bytes());
                if !self.no_zeroes {
                    self.out.extend_from_slice(&[0; 124]);
                }
                self.stage = Stage::Transmission;
            }
            option::ABORT => {
                self.reply(option, reply::ACK, &[]);
                return Next::End;
            }
            option::LIST if length == 0 => {
                let name = self.exported.name.as_bytes();
                let mut data = (name.len() as u32).to_be_bytes().to_vec();
                data.extend_from_slice(name);
                self.reply(option, reply::SERVER, &data);
                self.reply(option, reply::ACK, &[]);
            }
            option::LIST => self.reply(option, reply::ERR_INVALID, &[]),
            option::INFO | option::GO => self.go(option, data),
            _ => self.reply(option, reply::ERR_UNSUP, &[]),
        }
        Next::Took(all)
    }

    /// Whether this is the volume's name, or the empty name.
    fn is_exported(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.exported.name.as_bytes()
    }

    fn go(&mut self, option: u32, data: &[u8]) {
        let mut numbers = Numbers(data);
        let length = numbers
            .u32()
            .filter(|length| *length as usize <= data.len());
        let name = length.and_then(|length| numbers.bytes(length as usize));
        let kinds = numbers.u16();
        let (Some(name), Some(kinds)) = (name, kinds) else {
            return self.reply(option, reply::ERR_INVALID, &[]);
        };
        if numbers.0.len() != 2 * usize::from(kinds) {
            return self.reply(option, reply::ERR_INVALID, &[]);
        }
        if !self.is_exported(name) {
            let most = name.len().min(LONGEST_NAME);
            let name = String::from_utf8_lossy(&name[..most]).into_owned();
            let words = format!(
                "'{name}' is not exported here, but '{}' is",
                self.exported.name
            );
            return self.reply(option, reply::ERR_UNKNOWN, words.as_bytes());
        }
        let mut data = info::EXPORT.to_be_bytes().to_vec();
        data.extend_from_slice(&self.exported.bytes.to_be_bytes());
        data.extend_from_slice(&TRANSMISSION.to_be_bytes());
        self.reply(option, reply::INFO, &data);
        let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [BLOCK_BYTES as u32, PREFERRED_BYTES, LONGEST_REQUEST as u32] {
            data.extend_from_slice(&size.to_be_bytes());
        }
        self.reply(option, reply::INFO, &data);
        self.reply(option, reply::ACK, &[]);
        if option == option::GO {
            self.stage = Stage::Transmission;
        }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) {
        self.out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
        self.out.extend_from_slice(&option.to_be_bytes());
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out
            .extend_from_slice(&(data.len() as u32).to_be_bytes());
        self.out.extend_from_slice(data);
    }

    fn request<'a>(&mut self, input: &'a [u8]) -> Next<'a> {
        let Some((head, rest)) = input.split_at_checked(REQUEST_BYTES) else {
            return Next::More(REQUEST_BYTES);
        };
        let mut numbers = Numbers(head);
        let words = (numbers.u32(), numbers.u16(), numbers.u16(), numbers.u64());
        let (Some(REQUEST), Some(flags), Some(kind), Some(cookie)) = words else {
            return Next::End;
        };
        let (Some(offset), Some(length)) = (numbers.u64(), numbers.u32()) else {
            return Next::End;
        };
        if kind == command::DISC {
            return Next::End;
        }
        let (mut all, mut bytes) = (REQUEST_BYTES, &rest[..0]);
        if kind == command::WRITE {
            if u64::from(length) > LONGEST_REQUEST {
                // This much would have to be read before the next request can be found.
                return Next::End;
            }
            all += length as usize;
            match rest.get(..length as usize) {
                Some(given) => bytes = given,
                None => return Next::More(all),
            }
        }
        let length = u64::from(length);
        let fault = match kind {
            _ if flags & !command::FLAGS != 0 => errno::EINVAL,
            command::FLUSH => 0,
            command::READ | command::WRITE | command::TRIM | command::WRITE_ZEROES => {
                self.fault(kind, offset, length)
            }
            _ => errno::ENOTSUP,
        };
        let want = match kind {
            command::READ => Want::Read(length),
            command::WRITE => Want::Write(bytes),
            _ => Want::Zeros(length),
        };
        if fault != 0 || kind == command::FLUSH {
            self.answer(cookie, fault, &[]);
            return Next::Took(all);
        }
        Next::Asked(
            Asked {
                cookie,
                offset,
                want,
            },
            all,
        )
    }

    /// The error of a range; zero if it is valid.
    fn fault(&self, kind: u16, offset: u64, length: u64) -> u32 {
        let block = BLOCK_BYTES as u64;
        let most = match kind {
            command::READ | command::WRITE => LONGEST_REQUEST,
            _ => LONGEST_TRIM,
        };
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= self.exported.bytes);
        match (end, kind) {
            (None, command::WRITE | command::WRITE_ZEROES) => errno::ENOSPC,
            (None, _) => errno::EINVAL,
            _ if length == 0 || length > most => errno::EINVAL,
            _ if offset % block != 0 || length % block != 0 => errno::EINVAL,
            _ => 0,
        }
    }

    /// Answers a request.
    pub(super) fn answer(&mut self, cookie: u64, error: u32, bytes: &[u8]) {
        self.out.extend_from_slice(&SIMPLE_REPLY.to_be_bytes());
        self.out.extend_from_slice(&error.to_be_bytes());
        self.out.extend_from_slice(&cookie.to_be_bytes());
        self.out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn session() -> Session {
        Session::new(Exported {
            name: "birds".into(),
            bytes: 1 << 20,
        })
    }

    fn option(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn name(name: &[u8]) -> Vec<u8> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name);
        data.extend([0, 0]);
        data
    }

    fn in_transmission() -> Session {
        let mut session = session();
        assert_eq!(session.next(&3_u32.to_be_bytes()), Next::Took(4));
        let go = option(option::GO, &name(b"birds"));
        assert_eq!(session.next(&go), Next::Took(go.len()));
        assert!(session.is_in_transmission());
        session.out.clear();
        session
    }

    fn request(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
        let mut bytes = REQUEST.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(42_u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes
    }

    #[test]
    fn a_name_that_is_not_exported_is_refused_and_another_may_follow() {
        let mut session = session();
        session.next(&1_u32.to_be_bytes());
        session.out.clear();
        let go = option(option::GO, &name(b"fish"));
        assert_eq!(session.next(&go), Next::Took(go.len()));
        assert_eq!(session.out[12..16], reply::ERR_UNKNOWN.to_be_bytes());
        assert!(!session.is_in_transmission());
        let go = option(option::GO, &name(b""));
        session.next(&go);
        assert!(session.is_in_transmission());
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        let mut session = in_transmission();
        let mut write = request(1, command::WRITE, 4096, 4096);
        assert_eq!(session.next(&write[..20]), Next::More(28));
        assert_eq!(session.next(&write), Next::More(28 + 4096));
        write.extend([7; 4096]);
        let want = Want::Write(&write[28..]);
        let asked = Asked {
            cookie: 42,
            offset: 4096,
            want,
        };
        assert_eq!(session.next(&write), Next::Asked(asked, 28 + 4096));
    }

    #[test]
    fn what_cannot_be_is_answered_by_an_error() {
        let cases = [
            (0, command::READ, 100, 4096, errno::EINVAL),
            (0, command::READ, 0, 0, errno::EINVAL),
            (0, command::READ, 1 << 20, 4096, errno::EINVAL),
            (0, command::WRITE_ZEROES, 1 << 20, 4096, errno::ENOSPC),
            (0, command::TRIM, u64::MAX, 4096, errno::EINVAL),
            (0, command::TRIM, 0, 4095, errno::EINVAL),
            (1 << 8, command::READ, 0, 4096, errno::EINVAL),
            (0, 77, 0, 4096, errno::ENOTSUP),
            (0, command::FLUSH, 0, 0, 0),
        ];
        for (flags, kind, offset, length, error) in cases {
            let mut session = in_transmission();
            let bytes = request(flags, kind, offset, length);
            assert_eq!(
                session.next(&bytes),
                Next::Took(28),
                "{kind} {offset} {length}"
            );
            let mut reply = Numbers(&session.out);
            assert_eq!(reply.u32(), Some(SIMPLE_REPLY));
            assert_eq!(reply.u32(), Some(error), "{kind} {offset} {length}");
            assert_eq!(reply.u64(), Some(42));
        }
    }

    #[test]
    fn what_is_no_nbd_ends_the_session() {
        assert_eq!(session().next(&0_u32.to_be_bytes()), Next::End);
        assert_eq!(session().next(&u32::MAX.to_be_bytes()), Next::End);
        assert_eq!(in_transmission().next(&[0; 28]), Next::End);
        let long = request(0, command::WRITE, 0, u32::MAX);
        assert_eq!(in_transmission().next(&long), Next::End);
        let mut session = session();
        session.next(&3_u32.to_be_bytes());
        assert_eq!(session.next(&[0; 16]), Next::End);
        for _ in 0..MOST_OPTIONS {
            let list = option(option::LIST, &[]);
            assert_eq!(session.next(&list), Next::Took(16));
        }
        assert_eq!(session.next(&option(option::LIST, &[])), Next::End);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            mut input in prop::collection::vec(any::<u8>(), 0..200),
            stage in 0..3,
            marked: bool,
        ) {
            let mut session = if stage == 2 { in_transmission() } else { session() };
            if stage == 1 {
                session.next(&3_u32.to_be_bytes());
            }
            if marked && input.len() > 8 {
                match stage {
                    2 => input[..4].copy_from_slice(&REQUEST.to_be_bytes()),
                    _ => input[..8].copy_from_slice(&IHAVEOPT.to_be_bytes()),
                }
            }
            let mut from = 0;
            loop {
                match session.next(&input[from..]) {
                    Next::Took(bytes) | Next::Asked(_, bytes) => {
                        prop_assert!(bytes > 0 && from + bytes <= input.len());
                        from += bytes;
                    }
                    Next::More(bytes) => {
                        prop_assert!(bytes > input.len() - from);
                        break;
                    }
                    Next::End => break,
                }
            }
        }
    }
}
