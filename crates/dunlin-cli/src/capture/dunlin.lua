-- Wireshark's view of what `dunlin capture --write` writes.
--
--     tshark -X lua_script:dunlin.lua -r calls.pcapng
--     wireshark -X lua_script:dunlin.lua calls.pcapng
--
-- or copied into the personal Lua folder (Help, About Wireshark, Folders). Payloads can be given to another
-- dissector by "Decode As" on dunlin.handler, or by name: DissectorTable "dunlin.name".

local dunlin = Proto("dunlin", "Dunlin calls")

local kinds = {
    [0] = "request", [1] = "answer", [2] = "error", [3] = "panicked", [4] = "cancelled",
}

local f = {
    version = ProtoField.uint8("dunlin.version", "Version"),
    kind = ProtoField.uint8("dunlin.kind", "Kind", base.DEC, kinds),
    handler = ProtoField.uint16("dunlin.handler", "Handler"),
    code = ProtoField.uint32("dunlin.code", "Code of the error"),
    connection = ProtoField.uint64("dunlin.connection", "Connection"),
    call = ProtoField.uint64("dunlin.call", "Call"),
    length = ProtoField.uint64("dunlin.length", "Bytes of the payload"),
    took = ProtoField.relative_time("dunlin.took", "Took"),
    peer = ProtoField.string("dunlin.peer", "Client"),
    name = ProtoField.string("dunlin.name", "Method"),
    payload = ProtoField.bytes("dunlin.payload", "Payload"),
    message = ProtoField.string("dunlin.message", "Message of the error"),
    answered_in = ProtoField.framenum("dunlin.answered_in", "Answered in", base.NONE, frametype.RESPONSE),
    asked_in = ProtoField.framenum("dunlin.asked_in", "Asked in", base.NONE, frametype.REQUEST),
}
dunlin.fields = f

local other_version = ProtoExpert.new("dunlin.other_version", "Another version of the header",
    expert.group.UNDECODED, expert.severity.WARN)
local failed = ProtoExpert.new("dunlin.failed", "The call failed", expert.group.RESPONSE_CODE, expert.severity.NOTE)
dunlin.experts = { other_version, failed }

local by_handler = DissectorTable.new("dunlin.handler", "Dunlin handler", ftypes.UINT16, base.DEC)
local by_name = DissectorTable.new("dunlin.name", "Dunlin method", ftypes.STRING)

local HEADER = 42
-- Frames of each call, by its number.
local asked, answered = {}, {}

function dunlin.init()
    asked, answered = {}, {}
end

function dunlin.dissector(buffer, pinfo, tree)
    pinfo.cols.protocol = "Dunlin"
    local root = tree:add(dunlin, buffer())
    if buffer:len() < HEADER or buffer(0, 1):uint() ~= 1 then
        root:add_proto_expert_info(other_version)
        return 0
    end
    local kind = buffer(1, 1):uint()
    local peer, name = buffer(40, 1):uint(), buffer(41, 1):uint()
    local at = HEADER + peer + name
    if at > buffer:len() then
        root:add_proto_expert_info(other_version)
        return 0
    end
    root:add(f.version, buffer(0, 1))
    root:add(f.kind, buffer(1, 1))
    root:add(f.handler, buffer(2, 2))
    if kind == 2 then
        root:add(f.code, buffer(4, 4))
    end
    root:add(f.connection, buffer(8, 8))
    root:add(f.call, buffer(16, 8))
    root:add(f.length, buffer(24, 8))
    root:add(f.peer, buffer(HEADER, peer))
    local method = buffer(HEADER + peer, name):string()
    if name > 0 then
        root:add(f.name, buffer(HEADER + peer, name))
    end

    local call = tostring(buffer(16, 8):uint64())
    local others, field
    if kind == 0 then
        asked[call] = pinfo.number
        others, field = answered, f.answered_in
    else
        answered[call] = pinfo.number
        others, field = asked, f.asked_in
        local took = buffer(32, 8):uint64()
        root:add(f.took, buffer(32, 8), NSTime((took / 1000000000):tonumber(), (took % 1000000000):tonumber()))
    end
    if others[call] then
        root:add(field, others[call]):set_generated()
    end

    local handler = buffer(2, 2):uint()
    local what = name > 0 and method or "handler " .. handler
    pinfo.cols.src = kind == 0 and "client " .. tostring(buffer(8, 8):uint64()) or "server"
    pinfo.cols.dst = kind == 0 and "server" or "client " .. tostring(buffer(8, 8):uint64())
    pinfo.cols.info = string.format("%s %s, %s bytes", kinds[kind] or "kind " .. kind, what,
        tostring(buffer(24, 8):uint64()))

    if kind >= 2 then
        root:add_proto_expert_info(failed)
    end
    if at == buffer:len() then
        return buffer:len()
    end
    if kind == 2 then
        root:add(f.message, buffer(at))
        return buffer:len()
    end
    root:add(f.payload, buffer(at))
    local payload = buffer(at):tvb()
    if kind <= 1 and by_name:try(method, payload, pinfo, tree) == 0 then
        by_handler:try(handler, payload, pinfo, tree)
    end
    return buffer:len()
end

DissectorTable.get("wtap_encap"):add(wtap.USER0, dunlin)
