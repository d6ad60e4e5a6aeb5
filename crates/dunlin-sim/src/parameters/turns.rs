//! The service order of priorities, from the parameters of a NIC or a switch.

/// Implements `turns` for a structure of parameters with `strict_priorities` and `weight_0` to `weight_7`.
macro_rules! of_weights {
    ($name:ident) => {
        impl $name {
            /// The order in which its priorities are served.
            pub(crate) fn turns(&self) -> crate::priority::Turns {
                let weights = [
                    self.weight_0,
                    self.weight_1,
                    self.weight_2,
                    self.weight_3,
                    self.weight_4,
                    self.weight_5,
                    self.weight_6,
                    self.weight_7,
                ];
                crate::priority::Turns::new(self.strict_priorities, weights)
            }
        }
    };
}

pub(super) use of_weights;
