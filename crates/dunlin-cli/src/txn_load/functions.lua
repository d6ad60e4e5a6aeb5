#!lua name=dunlin
-- The transactions of SmallBank and TATP that are more than one command. Nil says that one has declined.

local OK = { ok = 'OK' }

local function number(key)
    return tonumber(redis.call('GET', key) or 0)
end

redis.register_function('amalgamate', function(keys)
    local all = number(keys[1]) + number(keys[2])
    redis.call('MSET', keys[1], 0, keys[2], 0)
    redis.call('INCRBY', keys[3], all)
    return OK
end)

redis.register_function('send_payment', function(keys, args)
    if number(keys[1]) < tonumber(args[1]) then return nil end
    redis.call('DECRBY', keys[1], args[1])
    redis.call('INCRBY', keys[2], args[1])
    return OK
end)

redis.register_function('write_check', function(keys, args)
    local amount = tonumber(args[1])
    if number(keys[1]) + number(keys[2]) < amount then amount = amount + 1 end
    redis.call('DECRBY', keys[2], amount)
    return OK
end)

redis.register_function('update_subscriber', function(keys, args)
    if redis.call('EXISTS', keys[2]) == 0 then return nil end
    redis.call('MSET', keys[1], args[1], keys[2], args[2])
    return OK
end)

redis.register_function('update_location', function(keys, args)
    local subscriber = redis.call('GET', keys[1])
    if not subscriber then return nil end
    redis.call('SET', 'u' .. subscriber, args[1])
    return OK
end)

redis.register_function('insert_forwarding', function(keys, args)
    local facility = redis.call('GET', keys[1]) and redis.call('GET', keys[2])
    if not facility or string.byte(facility, 1) >= 85 then return nil end
    if not redis.call('SET', keys[3], args[1], 'NX') then return nil end
    return OK
end)

redis.register_function('delete_forwarding', function(keys)
    if not redis.call('GET', keys[1]) or redis.call('DEL', keys[2]) == 0 then return nil end
    return OK
end)
