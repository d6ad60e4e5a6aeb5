//! Numbers of libibverbs' ABI.
#![allow(missing_docs)]

use super::types::Number;

pub const QPT_RC: Number = 2;
pub const QPT_UC: Number = 3;
pub const QPT_UD: Number = 4;

pub const QPS_RESET: Number = 0;
pub const QPS_INIT: Number = 1;
pub const QPS_RTR: Number = 2;
pub const QPS_RTS: Number = 3;
pub const QPS_SQD: Number = 4;
pub const QPS_ERR: Number = 6;

pub const QP_STATE: i32 = 1;
pub const QP_ACCESS: i32 = 1 << 3;
pub const QP_PKEY_INDEX: i32 = 1 << 4;
pub const QP_PORT: i32 = 1 << 5;
pub const QP_QUEUE_KEY: i32 = 1 << 6;
pub const QP_ADDRESS: i32 = 1 << 7;
pub const QP_PATH_MTU: i32 = 1 << 8;
pub const QP_TIMEOUT: i32 = 1 << 9;
pub const QP_RETRIES: i32 = 1 << 10;
pub const QP_RNR_RETRIES: i32 = 1 << 11;
pub const QP_RECEIVE_PSN: i32 = 1 << 12;
pub const QP_READS_INITIATED: i32 = 1 << 13;
pub const QP_RNR_TIMER: i32 = 1 << 15;
pub const QP_SEND_PSN: i32 = 1 << 16;
pub const QP_READS_ANSWERED: i32 = 1 << 17;
pub const QP_DESTINATION: i32 = 1 << 20;

pub const ACCESS_LOCAL_WRITE: i32 = 1;

pub const WR_WRITE: Number = 0;
pub const WR_WRITE_WITH_IMMEDIATE: Number = 1;
pub const WR_SEND: Number = 2;
pub const WR_SEND_WITH_IMMEDIATE: Number = 3;
pub const WR_READ: Number = 4;
pub const WR_COMPARE_AND_SWAP: Number = 5;
pub const WR_FETCH_AND_ADD: Number = 6;

pub const SEND_FENCE: u32 = 1;
pub const SEND_SIGNALED: u32 = 1 << 1;
pub const SEND_SOLICITED: u32 = 1 << 2;
pub const SEND_INLINE: u32 = 1 << 3;

pub const WC_SUCCESS: Number = 0;
pub const WC_RECEIVE_WRITE_WITH_IMMEDIATE: Number = 129;
pub const WC_WITH_IMMEDIATE: u32 = 1 << 1;

pub const EVENT_CQ_ERROR: Number = 0;
pub const EVENT_QP_FATAL: Number = 1;
pub const EVENT_QP_REQUEST_ERROR: Number = 2;
pub const EVENT_QP_ACCESS_ERROR: Number = 3;
pub const EVENT_DEVICE_FATAL: Number = 8;
pub const EVENT_PORT_ACTIVE: Number = 9;
pub const EVENT_PORT_ERROR: Number = 10;
pub const EVENT_LID_CHANGE: Number = 11;
pub const EVENT_QP_LAST_RECEIVE: Number = 16;
pub const EVENT_GID_CHANGE: Number = 18;

pub const PORT_ACTIVE: Number = 4;
pub const LINK_LAYER_ETHERNET: u8 = 2;
pub const ATOMICS_NONE: Number = 0;

/// `vendor_id` of the kernel's soft-RoCE, which no hardware vendor has.
pub const VENDOR_SOFT_ROCE: u32 = 0x00ff_ffff;
