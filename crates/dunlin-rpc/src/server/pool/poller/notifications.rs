//! Notifications by clients of a pool that have written messages: taken by the polling thread, and armed before it
//! sleeps.

use std::sync::atomic::Ordering;

use dunlin_verbs::{thread, Completion, CompletionQueue, Device, Notify};

use super::{Members, Poller, NOTIFICATIONS_BUDGET};
use crate::channel::pool::{Mapping, ServedPool};
use crate::channel::ChannelError;
use crate::server::connection::Connection;
use crate::server::connection_ids::place_of;

impl<D: Device> Poller<D> {
    /// Takes completions that notify of messages, within a budget, and returns their number.
    #[inline]
    pub(super) fn take_notifications(&mut self) -> usize {
        // Without clients that use notifications, this check is the only cost.
        if self.handle.notified.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut completions = [Completion::EMPTY; NOTIFICATIONS_BUDGET];
        let polled = thread::hold(|| match self.handle.notifications.try_lock() {
            Ok(mut notifications) => notifications
                .as_mut()
                .map_or(Ok(0), |notifications| notifications.poll(&mut completions)),
            // The lock is held for a client that is being made.
            Err(_) => Ok(0),
        });
        let heard = match polled {
            Ok(heard) => heard,
            Err(error) => {
                self.end_notified(&ChannelError::queue_pair(error.to_string()));
                return 0;
            }
        };
        for completion in &completions[..heard] {
            self.take_notification(completion);
        }
        heard
    }

    #[inline]
    pub(super) fn take_notification(&mut self, completion: &Completion) {
        let number = place_of(completion.id);
        let known = |members: &Members<D>| {
            let member = members.get(number as usize).and_then(Option::as_ref);
            member.is_some_and(|client| client.id == completion.id)
        };
        if !known(&self.members) {
            // The client may not have been adopted yet, or has left this behind.
            self.take_mail();
            if !known(&self.members) {
                return;
            }
        }
        let Some(Some(client)) = self.members.get_mut(number as usize) else {
            return;
        };
        let was_notified = client.channel.is_notified();
        match client.channel.ring(completion) {
            Ok(()) if client.channel.is_notified() && !was_notified => self.notified.push(number),
            Ok(()) => {}
            Err(error) => self.failed.push((number, error)),
        }
    }

    /// Requests an event with the next completion that notifies of a message. Returns `false` if that is not possible
    /// now.
    pub(super) fn arm_notifications(&mut self) -> bool {
        let armed = thread::hold(|| match self.handle.notifications.try_lock() {
            Ok(mut notifications) => {
                let arm = |notifications: &mut D::CompletionQueue| {
                    notifications.request_notify(Notify::Next)
                };
                Some(notifications.as_mut().map_or(Ok(()), arm))
            }
            Err(_) => None,
        });
        if let Some(Err(error)) = &armed {
            self.end_notified(&ChannelError::queue_pair(error.to_string()));
        }
        armed.is_some()
    }

    #[cold]
    pub(super) fn end_notified(&mut self, error: &ChannelError) {
        for (number, client) in self.members.iter().enumerate() {
            let notified =
                |client: &Connection<ServedPool<D>>| client.channel.mapping() == Mapping::Notified;
            if client.as_ref().is_some_and(notified) {
                self.failed.push((number as u32, error.clone()));
            }
        }
    }

    /// Whether a client that notified of messages has some that are not taken yet.
    pub(super) fn is_still_notified(&mut self, number: u32) -> bool {
        let Some(Some(client)) = self.members.get(number as usize) else {
            return false;
        };
        if client.is_fetching() && !self.still_fetching.contains(&number) {
            self.still_fetching.push(number);
        }
        client.channel.is_notified()
    }
}
