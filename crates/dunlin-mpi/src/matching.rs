//! Which message belongs to which receive, by MPI's rules, as a state machine over values.
//!
//! A message takes the receive that was posted first among those that match it; a receive takes the message that
//! arrived first among those that match it. Messages of one source arrive in the order in which they were sent, so
//! messages between two ranks do not overtake each other.

use std::collections::VecDeque;

use crate::selection::{Source, Status, Tag};
use crate::wire::Context;

/// What a receive accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) context: Context,
    pub(crate) source: Source,
    pub(crate) tag: Tag,
}

/// What is known of a message before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: Context,
    pub(crate) source: usize,
    pub(crate) tag: u32,
    pub(crate) bytes: usize,
}

impl Pattern {
    pub(crate) fn matches(&self, envelope: &Envelope) -> bool {
        self.context == envelope.context
            && self.source.accepts(envelope.source)
            && self.tag.accepts(envelope.tag)
    }
}

impl Envelope {
    pub(crate) fn status(&self) -> Status {
        Status {
            source: self.source,
            tag: self.tag,
            bytes: self.bytes,
        }
    }
}

/// A message that matched no receive when it arrived. It has no bytes while it is still arriving.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unexpected {
    pub(crate) envelope: Envelope,
    pub(crate) bytes: Option<Vec<u8>>,
}

/// The posted receives, each with a target of type `T`, and the unexpected messages.
#[derive(Debug)]
pub(crate) struct Matching<T> {
    posted: VecDeque<(Pattern, T)>,
    unexpected: VecDeque<Unexpected>,
}

impl<T> Matching<T> {
    pub(crate) fn new() -> Self {
        Self {
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
        }
    }

    /// Posts a receive for which [`Matching::take_unexpected`] found nothing.
    pub(crate) fn post(&mut self, pattern: Pattern, target: T) {
        self.posted.push_back((pattern, target));
    }

    /// Removes the first receive that matches an arriving message.
    pub(crate) fn take_posted(&mut self, envelope: &Envelope) -> Option<T> {
        let matches = |(pattern, _): &(Pattern, T)| pattern.matches(envelope);
        let at = self.posted.iter().position(matches)?;
        self.posted.remove(at).map(|(_, target)| target)
    }

    /// Removes posted receives whose target is such.
    pub(crate) fn withdraw(&mut self, is_such: impl Fn(&T) -> bool) {
        self.posted.retain(|(_, target)| !is_such(target));
    }

    /// Keeps a message that matches no receive; without bytes if they are still arriving.
    pub(crate) fn hold(&mut self, envelope: Envelope, bytes: Option<Vec<u8>>) {
        self.unexpected.push_back(Unexpected { envelope, bytes });
    }

    /// Adds the bytes of the message of this source that was arriving; only one at a time is.
    pub(crate) fn complete(&mut self, source: usize, bytes: Vec<u8>) {
        let is_it = |one: &&mut Unexpected| one.envelope.source == source && one.bytes.is_none();
        if let Some(one) = self.unexpected.iter_mut().rev().find(is_it) {
            one.bytes = Some(bytes);
        }
    }

    /// Removes the message of a lost source that was arriving: the rest will not come.
    pub(crate) fn abandon(&mut self, source: usize) {
        self.unexpected
            .retain(|one| one.envelope.source != source || one.bytes.is_some());
    }

    /// Removes the first unexpected message that matches a receive.
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Unexpected> {
        let matches = |one: &Unexpected| pattern.matches(&one.envelope);
        let at = self.unexpected.iter().position(matches)?;
        self.unexpected.remove(at)
    }

    /// The first unexpected message that matches.
    pub(crate) fn find(&self, pattern: &Pattern) -> Option<&Envelope> {
        let envelopes = self.unexpected.iter().map(|one| &one.envelope);
        envelopes.into_iter().find(|one| pattern.matches(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope(source: usize, tag: u32, bytes: usize) -> Envelope {
        Envelope {
            context: Context::User,
            source,
            tag,
            bytes,
        }
    }

    fn pattern(source: Source, tag: Tag) -> Pattern {
        Pattern {
            context: Context::User,
            source,
            tag,
        }
    }

    #[test]
    fn contexts_do_not_mix() {
        let mut matching = Matching::new();
        let context = Context::Collective;
        matching.post(pattern(Source::Any, Tag::Any), ());
        let internal = Envelope {
            context,
            ..envelope(0, 1, 0)
        };
        assert_eq!(matching.take_posted(&internal), None);
        matching.hold(internal, Some(Vec::new()));
        assert_eq!(matching.find(&pattern(Source::Any, Tag::Any)), None);
        assert_eq!(matching.take_posted(&envelope(0, 1, 0)), Some(()));
    }

    #[test]
    fn an_arriving_message_is_found_and_completed() {
        let mut matching = Matching::<()>::new();
        matching.hold(envelope(1, 5, 3), Some(vec![1; 3]));
        matching.hold(envelope(1, 6, 2), None);
        matching.hold(envelope(2, 6, 1), None);
        matching.complete(1, vec![9; 2]);
        let wanted = pattern(1.into(), 6.into());
        assert_eq!(
            matching.take_unexpected(&wanted).unwrap().bytes,
            Some(vec![9; 2])
        );
        matching.abandon(2);
        assert_eq!(matching.find(&pattern(Source::Any, 6.into())), None);
    }

    /// A step of a test: a receive is posted, or a message arrives.
    #[derive(Clone, Debug)]
    enum Step {
        Post(Source, Tag),
        Arrive(usize, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let source = prop_oneof![Just(Source::Any), (0_usize..3).prop_map(Source::Rank)];
        let tag = prop_oneof![Just(Tag::Any), (0_u32..3).prop_map(Tag::Is)];
        prop_oneof![
            (source, tag).prop_map(|(source, tag)| Step::Post(source, tag)),
            (0_usize..3, 0_u32..3).prop_map(|(source, tag)| Step::Arrive(source, tag)),
        ]
    }

    proptest! {
        /// The model is one list of everything that is unmatched: each step matches the first that fits.
        #[test]
        fn each_step_matches_the_first_that_fits(steps in prop::collection::vec(step(), 0..200)) {
            let mut matching = Matching::new();
            let mut unmatched: Vec<(usize, Step)> = Vec::new();
            for (number, step) in steps.iter().enumerate() {
                let fits = |other: &(usize, Step)| match (step, &other.1) {
                    (Step::Post(source, tag), Step::Arrive(from, with))
                    | (Step::Arrive(from, with), Step::Post(source, tag)) => {
                        source.accepts(*from) && tag.accepts(*with)
                    }
                    _ => false,
                };
                let expected = unmatched.iter().position(fits).map(|at| unmatched.remove(at).0);
                let found = match step {
                    Step::Post(source, tag) => {
                        let pattern = pattern(*source, *tag);
                        let taken = matching.take_unexpected(&pattern);
                        if taken.is_none() {
                            matching.post(pattern, number);
                        }
                        taken.map(|one| one.envelope.bytes)
                    }
                    Step::Arrive(source, tag) => {
                        // The length stands for the message's number.
                        let envelope = envelope(*source, *tag, number);
                        let taken = matching.take_posted(&envelope);
                        if taken.is_none() {
                            matching.hold(envelope, Some(Vec::new()));
                        }
                        taken
                    }
                };
                prop_assert_eq!(found, expected);
                if expected.is_none() {
                    unmatched.push((number, step.clone()));
                }
            }
        }
    }
}
