//! How much may be in flight (Flor §3.2): one controller for each queue pair, by a window or by a rate.

mod dcqcn;
mod swift;

pub use dcqcn::{Dcqcn, DcqcnParameters};
pub use swift::{Swift, SwiftParameters};

/// What an acknowledgement reveals about the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// Number of bytes that it acknowledges.
    pub bytes: u64,
    /// The round trip, if it could be measured.
    pub rtt_ns: Option<u64>,
    /// Whether a switch marked what is acknowledged. In-band telemetry would be another field.
    pub marked: bool,
}

/// How a loss was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Something sent after these work requests was acknowledged; the number of work requests.
    Overtaken(u32),
    /// There was no acknowledgement for too long; the number of consecutive timeouts.
    Timeout(u32),
}

/// A congestion control algorithm.
pub trait CongestionControl: std::fmt::Debug + Send {
    /// Records that this many bytes were sent.
    fn sent(&mut self, now_ns: u64, bytes: u64);

    /// Records an acknowledgement.
    fn acknowledged(&mut self, now_ns: u64, signals: Signals);

    /// Records a loss.
    fn lost(&mut self, now_ns: u64, loss: Loss);

    /// Maximum number of bytes in flight: nothing is sent while there are as many, unless there are none.
    fn window_bytes(&self) -> u64;

    /// Nothing may be sent before this time, if there is a rate.
    fn not_before_ns(&self) -> u64 {
        0
    }
}

/// A window that never changes: one bandwidth-delay product in the paper's fourth configuration of Fig. 9.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    window_bytes: u64,
}

impl FixedWindow {
    /// Creates a window of this many bytes.
    pub fn new(window_bytes: u64) -> Self {
        Self { window_bytes }
    }

    /// Creates a window of one bandwidth-delay product.
    pub fn of(bits_per_second: u64, rtt_ns: u64) -> Self {
        let bytes = u128::from(bits_per_second) * u128::from(rtt_ns) / 8_000_000_000;
        Self::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl CongestionControl for FixedWindow {
    fn sent(&mut self, _: u64, _: u64) {}

    fn acknowledged(&mut self, _: u64, _: Signals) {}

    fn lost(&mut self, _: u64, _: Loss) {}

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }
}

/// No control: the NIC's own, or none at all.
#[derive(Clone, Copy, Debug)]
pub struct HardwareControl;

impl CongestionControl for HardwareControl {
    fn sent(&mut self, _: u64, _: u64) {}

    fn acknowledged(&mut self, _: u64, _: Signals) {}

    fn lost(&mut self, _: u64, _: Loss) {}

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_nothing_changes() {
        let mut fixed = FixedWindow::of(100_000_000_000, 50_000);
        assert_eq!(fixed.window_bytes(), 625_000);
        fixed.lost(0, Loss::Timeout(1));
        assert_eq!(fixed.window_bytes(), 625_000);
        assert_eq!(FixedWindow::of(u64::MAX, u64::MAX).window_bytes(), u64::MAX);
        assert_eq!(HardwareControl.window_bytes(), u64::MAX);
        assert_eq!(HardwareControl.not_before_ns(), 0);
    }
}
