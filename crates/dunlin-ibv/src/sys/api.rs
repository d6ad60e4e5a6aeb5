//! The functions of libibverbs that are symbols of the library.
//!
//! They are in a table of plain function pointers, which tests can replace by their own functions.
#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_void};

use super::extended::QpEx;
use super::types::{
    Ah, AhAttributes, AsyncEvent, CompletionChannel, Context, Cq, Device, DeviceAttributes, Gid,
    Mr, Pd, PortAttributes, Qp, QpAttributes, QpInit, Srq, SrqInit,
};

/// The name under which the dynamic linker finds it.
pub const LIBRARY: &str = "libibverbs.so.1";

macro_rules! api {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of libibverbs. The pointers stay valid: the library is never closed.
        #[derive(Clone, Copy, Debug)]
        pub struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Newer libraries only: whether the bytes of a WRITE are placed in order.
            pub query_data_in_order: Option<unsafe extern "C" fn(*mut Qp, u32, u32) -> c_int>,
            /// Newer libraries only: the extended calls of a queue pair that was created for them.
            pub qp_to_qp_ex: Option<unsafe extern "C" fn(*mut Qp) -> *mut QpEx>,
        }

        impl Api {
            /// Opens the library `name` for the life of the process.
            ///
            /// # Errors
            /// The dynamic linker's error: the library or a function is missing.
            pub fn load(name: &str) -> Result<Self, libloading::Error> {
                // SAFETY: libibverbs' initializers only prepare tables of the library.
                let library = unsafe { libloading::Library::new(name) }?;
                // SAFETY: each symbol has the C signature declared with it. The pointers outlive `library`, which is
                // leaked below.
                let api = unsafe {
                    Self {
                        $($field: *library.get(concat!($symbol, "\0").as_bytes())?,)*
                        query_data_in_order: library
                            .get(b"ibv_query_qp_data_in_order\0")
                            .ok()
                            .map(|symbol| *symbol),
                        qp_to_qp_ex: library
                            .get(b"ibv_qp_to_qp_ex\0")
                            .ok()
                            .map(|symbol| *symbol),
                    }
                };
                // Providers start threads and leave handlers behind, so unloading is not safe, and there is only one
                // library.
                std::mem::forget(library);
                Ok(api)
            }
        }
    };
}

api! {
    get_device_list = "ibv_get_device_list": fn(*mut c_int) -> *mut *mut Device;
    free_device_list = "ibv_free_device_list": fn(*mut *mut Device) -> ();
    get_device_name = "ibv_get_device_name": fn(*mut Device) -> *const c_char;
    open_device = "ibv_open_device": fn(*mut Device) -> *mut Context;
    close_device = "ibv_close_device": fn(*mut Context) -> c_int;
    query_device = "ibv_query_device": fn(*mut Context, *mut DeviceAttributes) -> c_int;
    query_port = "ibv_query_port": fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    query_gid = "ibv_query_gid": fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd = "ibv_alloc_pd": fn(*mut Context) -> *mut Pd;
    dealloc_pd = "ibv_dealloc_pd": fn(*mut Pd) -> c_int;
    reg_mr = "ibv_reg_mr": fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr = "ibv_dereg_mr": fn(*mut Mr) -> c_int;
    create_channel = "ibv_create_comp_channel": fn(*mut Context) -> *mut CompletionChannel;
    destroy_channel = "ibv_destroy_comp_channel": fn(*mut CompletionChannel) -> c_int;
    create_cq = "ibv_create_cq": fn(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut Cq;
    destroy_cq = "ibv_destroy_cq": fn(*mut Cq) -> c_int;
    get_cq_event = "ibv_get_cq_event": fn(*mut CompletionChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events = "ibv_ack_cq_events": fn(*mut Cq, u32) -> ();
    create_qp = "ibv_create_qp": fn(*mut Pd, *mut QpInit) -> *mut Qp;
    modify_qp = "ibv_modify_qp": fn(*mut Qp, *mut QpAttributes, c_int) -> c_int;
    query_qp = "ibv_query_qp": fn(*mut Qp, *mut QpAttributes, c_int, *mut QpInit) -> c_int;
    destroy_qp = "ibv_destroy_qp": fn(*mut Qp) -> c_int;
    create_srq = "ibv_create_srq": fn(*mut Pd, *mut SrqInit) -> *mut Srq;
    destroy_srq = "ibv_destroy_srq": fn(*mut Srq) -> c_int;
    create_ah = "ibv_create_ah": fn(*mut Pd, *mut AhAttributes) -> *mut Ah;
    destroy_ah = "ibv_destroy_ah": fn(*mut Ah) -> c_int;
    get_async_event = "ibv_get_async_event": fn(*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event = "ibv_ack_async_event": fn(*mut AsyncEvent) -> ();
}
