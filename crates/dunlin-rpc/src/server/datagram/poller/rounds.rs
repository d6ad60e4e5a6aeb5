//! The passes of a datagram poller on its polling thread.

use dunlin_verbs::{thread, Device};

use super::super::session::Session;
use super::Poller;
use crate::channel::ChannelError;
use crate::server::rounds::Rounds;

impl<D: Device> Rounds for Poller<D> {
    #[inline]
    fn pass(&mut self) -> usize {
        let mut work = 0;
        if self.handle.mailbox.has_mail() {
            work += self.take_mail();
        }
        if self.renewal.is_some() {
            self.renew();
            return work;
        }
        let served = self.serve();
        let sent = self.outgoing.flush(&mut self.endpoint);
        match served.and_then(|taken| sent.map(|()| taken)) {
            Ok(taken) => work + taken,
            Err(error) => {
                self.fail(&error);
                work
            }
        }
    }

    fn check(&mut self) {
        self.now = thread::now();
        self.check_sessions();
        if self.leaving && self.renewal.is_none() {
            // New clients wait for what it locks.
            thread::hold(|| self.give_back());
        }
    }

    fn has_clients(&self) -> bool {
        self.handle.mailbox.has_clients() || self.renewal.is_some() || self.leaving
    }

    fn is_over(&mut self) -> bool {
        if self.is_ending() {
            return true;
        }
        if !self.handle.mailbox.is_draining() {
            return false;
        }
        if !self.said_goodbye {
            self.said_goodbye = true;
            for number in 0..self.sessions.len() as u32 {
                self.with(number, |session, tools, _| session.say_goodbye(tools));
            }
            if let Err(error) = self.outgoing.flush(&mut self.endpoint) {
                self.fail(&error);
            }
        }
        let quiet = self.sessions.iter().flatten().all(Session::is_quiet);
        quiet && !self.has_work()
    }

    fn is_ending(&self) -> bool {
        self.handle.mailbox.is_ending()
    }

    fn has_work(&mut self) -> bool {
        if self.handle.mailbox.has_mail() || !self.ready.is_empty() || !self.outgoing.is_empty() {
            return true;
        }
        if self.zones.iter().any(|(_, zone)| zone.has_arrival()) {
            return true;
        }
        let ready = &mut self.ready;
        let polled = self.endpoint.poll(|session| ready.push_back(session));
        if let Err(error) = &polled {
            let error = error.clone();
            self.fail(&error);
        }
        matches!(polled, Ok(arrived) if arrived > 0) || self.endpoint.has_unclaimed()
    }

    fn prepare_sleep(&mut self) -> bool {
        match self.renewal {
            // This lasts only a moment.
            Some(_) => return false,
            None => {
                for at in 0..self.zones.len() {
                    let Some(&(number, _)) = self.zones.get(at) else {
                        break;
                    };
                    self.with(number, |session, tools, _| session.say_asleep(tools));
                }
                let sent = self.outgoing.flush(&mut self.endpoint);
                if let Err(error) = sent.and_then(|()| self.endpoint.prepare_sleep()) {
                    self.fail(&error);
                }
            }
        }
        self.outgoing.is_empty()
    }

    fn close(&mut self) {
        let mut open: Vec<u32> = Vec::new();
        for (number, session) in self.sessions.iter().enumerate() {
            if session.is_some() {
                open.push(number as u32);
            }
        }
        if let Some((&last, others)) = open.split_last() {
            for &number in others {
                self.with(number, |session, tools, _| session.say_goodbye(tools));
            }
            let _ = self.outgoing.flush(&mut self.endpoint);
            self.endpoint.signal_next();
            self.with(last, |session, tools, _| session.say_goodbye(tools));
            let _ = self.outgoing.flush(&mut self.endpoint);
            self.endpoint.finish();
        }
        self.end_all(&ChannelError::peer_gone());
    }
}
