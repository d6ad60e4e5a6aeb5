//! Detects a peer that owes a message and has fallen silent, and determines when to check next.

use dunlin_verbs::{CompletionStatus, ConnectAttributes, Device};

use super::{Cause, Engine, Shared, LEAST_SILENCE_NS};

impl<D: Device> Engine<D> {
    /// Checks whether a peer that owes a message still sends anything.
    pub(super) fn watch(&mut self, shared: &Shared<D>, now_ns: u64) {
        let most_ns = self.most_silence_ns();
        let away_ns = now_ns.saturating_sub(self.watched_ns);
        self.watched_ns = now_ns;
        let Some(link) = self.link.as_mut().filter(|_| self.requester.waits()) else {
            self.silent_since_ns = now_ns;
            return;
        };
        if away_ns > most_ns / 8 {
            // Nobody polled meanwhile: what the peer sent then has not been read yet.
            self.silent_since_ns = self.silent_since_ns.saturating_add(away_ns).min(now_ns);
        }
        let heard_ns = link.connection().heard_ns().max(self.silent_since_ns);
        let silence_ns = now_ns.saturating_sub(heard_ns);
        if silence_ns > most_ns {
            let cause = Cause::Silent {
                milliseconds: silence_ns / 1_000_000,
            };
            self.fail(shared, Some(CompletionStatus::RetryExceeded), cause);
            self.say_closed(now_ns);
        } else if silence_ns > most_ns / 8 && now_ns.saturating_sub(self.probed_ns) > most_ns / 8 {
            self.probed_ns = now_ns;
            link.probe();
            self.flush(now_ns);
        }
    }

    fn most_silence_ns(&self) -> u64 {
        let ConnectAttributes {
            timeout_ns,
            retry_count,
            ..
        } = self.attributes;
        let asked = timeout_ns.saturating_mul(u64::from(retry_count) + 1);
        asked.max(LEAST_SILENCE_NS)
    }

    /// When to check next if there is no event before.
    pub(crate) fn next_deadline(&self, now_ns: u64) -> Option<u64> {
        let link = self.link.as_ref().filter(|_| self.connected)?;
        let waits = self.requester.waits();
        let watch_ns = waits.then(|| now_ns.saturating_add(self.most_silence_ns() / 8));
        let times = [
            link.next_deadline(now_ns),
            watch_ns,
            self.responder.gives_up_ns(),
        ];
        times.into_iter().flatten().min()
    }
}
