//! Checks sizes and offsets of fields against the C header, if a C compiler and the header are installed.

use std::mem::{offset_of, size_of};
use std::process::Command;

use super::extended as x;
use super::types as t;

/// Pairs of a number in Rust and the corresponding expression in C.
fn facts() -> Vec<(usize, &'static str)> {
    macro_rules! at {
        ($rust:ident.$field:ident, $c:literal) => {
            (offset_of!(t::$rust, $field), $c)
        };
    }
    vec![
        (size_of::<t::Device>(), "sizeof(struct ibv_device)"),
        at!(Device.name, "offsetof(struct ibv_device, name)"),
        at!(Device.sysfs_path, "offsetof(struct ibv_device, ibdev_path)"),
        (size_of::<t::Operations>(), "sizeof(struct ibv_context_ops)"),
        at!(
            Operations.poll_cq,
            "offsetof(struct ibv_context_ops, poll_cq)"
        ),
        at!(
            Operations.request_notify,
            "offsetof(struct ibv_context_ops, req_notify_cq)"
        ),
        at!(
            Operations.post_shared_receive,
            "offsetof(struct ibv_context_ops, post_srq_recv)"
        ),
        at!(
            Operations.post_send,
            "offsetof(struct ibv_context_ops, post_send)"
        ),
        at!(
            Operations.post_receive,
            "offsetof(struct ibv_context_ops, post_recv)"
        ),
        at!(Context.operations, "offsetof(struct ibv_context, ops)"),
        at!(
            Context.async_descriptor,
            "offsetof(struct ibv_context, async_fd)"
        ),
        at!(
            Context.completion_vectors,
            "offsetof(struct ibv_context, num_comp_vectors)"
        ),
        at!(Mr.lkey, "offsetof(struct ibv_mr, lkey)"),
        at!(Mr.rkey, "offsetof(struct ibv_mr, rkey)"),
        at!(
            CompletionChannel.descriptor,
            "offsetof(struct ibv_comp_channel, fd)"
        ),
        at!(Cq.entries, "offsetof(struct ibv_cq, cqe)"),
        at!(Qp.number, "offsetof(struct ibv_qp, qp_num)"),
        at!(Srq.handle, "offsetof(struct ibv_srq, handle)"),
        (
            size_of::<t::DeviceAttributes>(),
            "sizeof(struct ibv_device_attr)",
        ),
        at!(
            DeviceAttributes.max_qp,
            "offsetof(struct ibv_device_attr, max_qp)"
        ),
        at!(
            DeviceAttributes.atomics,
            "offsetof(struct ibv_device_attr, atomic_cap)"
        ),
        at!(
            DeviceAttributes.ports,
            "offsetof(struct ibv_device_attr, phys_port_cnt)"
        ),
        (
            size_of::<t::PortAttributes>(),
            "sizeof(struct ibv_port_attr)",
        ),
        at!(PortAttributes.lid, "offsetof(struct ibv_port_attr, lid)"),
        at!(
            PortAttributes.link_layer,
            "offsetof(struct ibv_port_attr, link_layer)"
        ),
        (size_of::<t::AhAttributes>(), "sizeof(struct ibv_ah_attr)"),
        at!(AhAttributes.port, "offsetof(struct ibv_ah_attr, port_num)"),
        (size_of::<t::QpInit>(), "sizeof(struct ibv_qp_init_attr)"),
        at!(QpInit.kind, "offsetof(struct ibv_qp_init_attr, qp_type)"),
        (size_of::<t::QpAttributes>(), "sizeof(struct ibv_qp_attr)"),
        at!(
            QpAttributes.address,
            "offsetof(struct ibv_qp_attr, ah_attr)"
        ),
        at!(
            QpAttributes.timeout,
            "offsetof(struct ibv_qp_attr, timeout)"
        ),
        at!(
            QpAttributes.rate_limit,
            "offsetof(struct ibv_qp_attr, rate_limit)"
        ),
        (size_of::<t::SrqInit>(), "sizeof(struct ibv_srq_init_attr)"),
        (size_of::<t::Sge>(), "sizeof(struct ibv_sge)"),
        (size_of::<t::SendWr>(), "sizeof(struct ibv_send_wr)"),
        at!(SendWr.immediate, "offsetof(struct ibv_send_wr, imm_data)"),
        at!(SendWr.remote, "offsetof(struct ibv_send_wr, wr)"),
        (size_of::<t::ReceiveWr>(), "sizeof(struct ibv_recv_wr)"),
        (size_of::<t::Wc>(), "sizeof(struct ibv_wc)"),
        at!(Wc.immediate, "offsetof(struct ibv_wc, imm_data)"),
        at!(Wc.flags, "offsetof(struct ibv_wc, wc_flags)"),
        (size_of::<t::AsyncEvent>(), "sizeof(struct ibv_async_event)"),
        (
            size_of::<x::Table>() - offset_of!(x::Table, create_cq_ex),
            "sizeof(struct verbs_context) - offsetof(struct verbs_context, create_cq_ex)",
        ),
        (
            size_of::<x::Table>() - offset_of!(x::Table, query_device),
            "sizeof(struct verbs_context) - offsetof(struct verbs_context, query_device_ex)",
        ),
        (
            size_of::<x::Table>() - offset_of!(x::Table, create_qp_ex),
            "sizeof(struct verbs_context) - offsetof(struct verbs_context, create_qp_ex)",
        ),
        (
            size_of::<x::Table>() - offset_of!(x::Table, size),
            "sizeof(struct verbs_context) - offsetof(struct verbs_context, sz)",
        ),
        (size_of::<x::WholeContext>(), "sizeof(struct ibv_context)"),
        (
            offset_of!(x::WholeContext, mark),
            "offsetof(struct ibv_context, abi_compat)",
        ),
        (size_of::<x::CqInit>(), "sizeof(struct ibv_cq_init_attr_ex)"),
        (
            offset_of!(x::CqInit, fields),
            "offsetof(struct ibv_cq_init_attr_ex, wc_flags)",
        ),
        (
            offset_of!(x::CqEx, status),
            "offsetof(struct ibv_cq_ex, status)",
        ),
        (offset_of!(x::CqEx, id), "offsetof(struct ibv_cq_ex, wr_id)"),
        (
            offset_of!(x::CqEx, start_poll),
            "offsetof(struct ibv_cq_ex, start_poll)",
        ),
        (
            offset_of!(x::CqEx, read_source),
            "offsetof(struct ibv_cq_ex, read_src_qp)",
        ),
        (
            offset_of!(x::CqEx, read_timestamp),
            "offsetof(struct ibv_cq_ex, read_completion_ts)",
        ),
        (
            size_of::<x::QpInitEx>(),
            "sizeof(struct ibv_qp_init_attr_ex)",
        ),
        (
            offset_of!(x::QpInitEx, pd),
            "offsetof(struct ibv_qp_init_attr_ex, pd)",
        ),
        (
            offset_of!(x::QpInitEx, send_operations),
            "offsetof(struct ibv_qp_init_attr_ex, send_ops_flags)",
        ),
        (offset_of!(x::QpEx, id), "offsetof(struct ibv_qp_ex, wr_id)"),
        (
            offset_of!(x::QpEx, flags),
            "offsetof(struct ibv_qp_ex, wr_flags)",
        ),
        (
            offset_of!(x::QpEx, write),
            "offsetof(struct ibv_qp_ex, wr_rdma_write)",
        ),
        (
            offset_of!(x::QpEx, set_datagram),
            "offsetof(struct ibv_qp_ex, wr_set_ud_addr)",
        ),
        (
            offset_of!(x::QpEx, set_inline),
            "offsetof(struct ibv_qp_ex, wr_set_inline_data)",
        ),
        (
            offset_of!(x::QpEx, set_sges),
            "offsetof(struct ibv_qp_ex, wr_set_sge_list)",
        ),
        (
            offset_of!(x::QpEx, abort),
            "offsetof(struct ibv_qp_ex, wr_abort)",
        ),
        (
            offset_of!(x::ExtendedDeviceAttributes, timestamp_mask),
            "offsetof(struct ibv_device_attr_ex, completion_timestamp_mask)",
        ),
        (
            offset_of!(x::ExtendedDeviceAttributes, clock_khz),
            "offsetof(struct ibv_device_attr_ex, hca_core_clock)",
        ),
        (
            x::WC_TIMESTAMP as usize,
            "IBV_WC_EX_WITH_COMPLETION_TIMESTAMP",
        ),
        (
            x::QP_INIT_SEND_OPERATIONS as usize,
            "IBV_QP_INIT_ATTR_SEND_OPS_FLAGS",
        ),
        (
            x::WITH_FETCH_AND_ADD as usize,
            "IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD",
        ),
        (super::constants::QP_DESTINATION as usize, "IBV_QP_DEST_QPN"),
        (
            super::constants::EVENT_QP_LAST_RECEIVE as usize,
            "IBV_EVENT_QP_LAST_WQE_REACHED",
        ),
        (
            super::constants::EVENT_GID_CHANGE as usize,
            "IBV_EVENT_GID_CHANGE",
        ),
        (
            super::constants::WC_RECEIVE_WRITE_WITH_IMMEDIATE as usize,
            "IBV_WC_RECV_RDMA_WITH_IMM",
        ),
    ]
}

/// The header's directory: `DUNLIN_IBV_INCLUDE`, or where distributions put it.
fn header() -> Option<String> {
    let own = std::env::var("DUNLIN_IBV_INCLUDE").ok();
    let usual = ["/usr/include".to_owned(), "/usr/local/include".to_owned()];
    own.into_iter().chain(usual).find(|directory| {
        std::path::Path::new(directory)
            .join("infiniband/verbs.h")
            .exists()
    })
}

#[test]
fn agrees_with_the_header() {
    use std::io::Write;
    let skip = |why: &str| {
        let _ = writeln!(std::io::stderr(), "skipped: {why} (layout of libibverbs)");
    };
    let Some(include) = header() else {
        return skip(
            "no infiniband/verbs.h here; apt install libibverbs-dev, or set DUNLIN_IBV_INCLUDE",
        );
    };
    let place = std::env::temp_dir().join(format!("dunlin-ibv-layout-{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    let source = place.join("layout.c");
    let mut text = "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\n\
                    int main(void) {\n"
        .to_owned();
    for (_, c) in facts() {
        text += &format!("printf(\"%zu\\n\", (size_t)({c}));\n");
    }
    text += "return 0; }\n";
    std::fs::write(&source, text).expect("the source");
    let program = place.join("layout");
    let built = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status();
    match built {
        Ok(status) => assert!(status.success(), "the header does not compile"),
        Err(error) => return skip(&format!("no C compiler: {error}")),
    }
    let output = Command::new(&program).output().expect("it runs").stdout;
    let theirs: Vec<usize> = String::from_utf8_lossy(&output)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let ours = facts();
    assert_eq!(ours.len(), theirs.len());
    for ((rust, what), c) in ours.into_iter().zip(theirs) {
        assert_eq!(rust, c, "{what}");
    }
    let _ = std::fs::remove_dir_all(place);
}
