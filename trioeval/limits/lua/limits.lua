-- The state of all limits of one namespace, and the decisions about them: one call, one step of the server.
--
-- KEYS[1]  {namespace}: everything is kept under this hash tag, so that one node of a cluster has all of it
-- ARGV     operation; now in whole microseconds (empty: the server's clock); its items as JSON
--
--   {ns}              hash    retention: microseconds for which a lease is remembered after its last request;
--                             last: the last instant; behind: how much the clock was set back, in all;
--                             forgotten: leases whose last request was before this instant were due under a
--                             retention that has changed since
--   {ns}:keys         set     the keys of all limits
--   {ns}:k:<key>      string  a limit and its usage, packed: a hash of numbers costs three times as much
--   {ns}:z:<key>      zset    the shares of leases: "<amount>:<lease id>", scored by the instant at which it
--                             was taken, extended, or (of a budget) last requested
--   {ns}:l:<lease id> string  the record of a lease; Redis drops it when it is due
--   {ns}:room         channel for the keys that have room again while a client waits for it
--
-- Rules and answers are those of ledger.py; the same state machine tests both. All amounts and instants are
-- whole numbers below 2^53, which doubles hold exactly. Expired shares are found when a limit is read, never by
-- a timer. A record has the instant of its last request: one that is due does not count, even if Redis has not
-- dropped it yet.

local MOST = 9007199254740991
local HINT, LONGEST_HINT = 50000, 2000000
local LEAST_RETENTION = 600000000
local CHUNK = 1000  -- entries read at a time

local ns, operation, given, items = KEYS[1], ARGV[1], ARGV[2], cjson.decode(ARGV[3])
local call = redis.call

local stored = call('HMGET', ns, 'retention', 'last', 'behind', 'forgotten')
local retention = tonumber(stored[1] or LEAST_RETENTION)
local forgotten = tonumber(stored[4] or -1)

local clock = tonumber(given)
if given == '' then
  local time = call('TIME')
  clock = time[1] * 1000000 + time[2]
end
-- If the clock was set back, time continues from the last instant: what is stored with later instants ends on
-- time, and not later by the difference.
local behind = math.max(tonumber(stored[3] or 0), tonumber(stored[2] or 0) - clock)
local now = clock + behind

local function whole(number) return string.format('%.0f', number) end

-- Limits ----------------------------------------------------------------------------------------------

-- key, kind, capacity, span (0: a budget without end), overage, unit, description, pending (0: none), used,
-- outstanding, debt, paused (until), streak (of denials), wanted (until when a client waits), began.
local limits = {}  -- those read, by key; false for an unknown key
local packed = {}  -- as they were written
local roomy = {}  -- true for those that got room

local function entries_of(limit) return ns .. ':z:' .. limit.key end

local function taken(limit) return limit.used + limit.outstanding end

local function target(limit) return limit.pending > 0 and limit.pending or limit.capacity end

-- Applies a smaller capacity once that much is free.
local function decrease(limit)
  if limit.pending > 0 and taken(limit) <= limit.pending then
    limit.capacity, limit.pending = limit.pending, 0
  end
end

-- Records that a share was returned or has expired.
local function freed(limit)
  roomy[limit.key] = true
  decrease(limit)
end

-- Removes the shares taken up to an instant; returns their sum.
local function take_out(limit, instant)
  local sum, count = 0, 0
  repeat
    local entries = call('ZRANGEBYSCORE', entries_of(limit), '-inf', whole(instant), 'LIMIT', count, CHUNK)
    for i = 1, #entries do sum = sum + string.match(entries[i], '^%d+') end
    count = count + #entries
  until #entries < CHUNK
  if count > 0 then call('ZREMRANGEBYSCORE', entries_of(limit), '-inf', whole(instant)) end
  return sum
end

-- An unsettled share that is due counts as fully used, in the period in which its lease is dropped.
local function refresh_budget(limit)
  if limit.span > 0 and limit.began + limit.span <= now then
    limit.began = now - (now - limit.began) % limit.span
    limit.used = 0
    limit.outstanding = limit.outstanding - take_out(limit, limit.began - retention - 1)
    freed(limit)
  end
  local given_up = take_out(limit, now - retention)
  limit.outstanding = limit.outstanding - given_up
  limit.used = limit.used + given_up
end

local function refresh(limit)
  if limit.kind == 'budget' then return refresh_budget(limit) end
  local sum = take_out(limit, now - limit.span)
  if sum > 0 then
    limit.used = limit.used - sum
    freed(limit)
  end
end

-- Returns the current state of a limit; false for an unknown key.
local function find(key)
  local limit = limits[key]
  if limit ~= nil then return limit end
  packed[key] = call('GET', ns .. ':k:' .. key)
  limit = packed[key] and cmsgpack.unpack(packed[key])
  limits[key] = limit
  if limit then refresh(limit) end
  return limit
end

-- Stores the limits that were read, and notifies the clients that wait for one of them.
local function save()
  local keys = {}
  for key, limit in pairs(limits) do
    local now_packed = limit and cmsgpack.pack(limit)
    if now_packed ~= packed[key] then call('SET', ns .. ':k:' .. key, now_packed) end
    if limit and roomy[key] and limit.wanted > now then keys[#keys + 1] = key end
  end
  -- A full server rejects this if nothing else was written, and must not reject a mere read.
  redis.pcall('HSET', ns, 'last', whole(now), 'behind', whole(behind))
  if #keys > 0 then call('PUBLISH', ns .. ':room', cjson.encode(keys)) end
end

-- A hold counts as one, whatever the requested amount.
local function share_of(limit, amount) return limit.kind == 'concurrency' and 1 or amount end

local function fits(limit, amount)
  return limit.pending == 0 and share_of(limit, amount) <= limit.capacity - taken(limit)
end

-- Returns the microseconds until there is room for an amount: exact for a window, else a hint.
local function until_room(limit, amount)
  if limit.kind ~= 'rolling' then
    -- Six doublings already exceed the bound; a streak may have any length.
    local hint = math.min(HINT * 2 ^ math.min(limit.streak, 6), LONGEST_HINT)
    return limit.span > 0 and math.min(hint, limit.span) or hint
  end
  local missing, from, count = limit.used + amount - target(limit), 0, 1
  while missing > 0 do
    local entries = call('ZRANGE', entries_of(limit), from, from + count - 1, 'WITHSCORES')
    if #entries == 0 then break end
    for i = 1, #entries, 2 do
      missing = missing - string.match(entries[i], '^%d+')
      if missing <= 0 then return entries[i + 1] + limit.span - now end
    end
    from, count = from + count, math.min(2 * count, CHUNK)  -- the first one is mostly enough
  end
  return 0
end

-- Leases ----------------------------------------------------------------------------------------------
-- A record: {'denied', last request at, reason, retry after, keys}, also for a lease that is over,
--        or {'granted', last request at, reserved at, {{key, amount}...}}.

local function recall(lease)
  local packed = call('GET', ns .. ':l:' .. lease)
  local record = packed and cmsgpack.unpack(packed)
  return record and record[2] > forgotten and record[2] + retention > now and record or nil
end

local function remember(lease, record)
  call('SET', ns .. ':l:' .. lease, cmsgpack.pack(record), 'PX', whole(math.ceil(retention / 1000)))
  return record
end

local function entry(limit, amount, lease) return whole(share_of(limit, amount)) .. ':' .. lease end

local function has_expired(lease, record)
  for _, share in ipairs(record[4]) do
    local limit = find(share[1])
    if limit and limit.kind == 'concurrency' and not call('ZSCORE', entries_of(limit), entry(limit, 1, lease)) then
      return true
    end
  end
  return false
end

local function is_same(asked, requirements)
  if #asked ~= #requirements then return false end
  local amounts = {}
  for _, share in ipairs(asked) do amounts[share[1]] = share[2] end
  for _, one in ipairs(requirements) do
    if amounts[one[1]] ~= one[2] then return false end
  end
  return true
end

-- Records a request about a lease: its budget shares stay outstanding; its holds are extended if requested.
local function hear(lease, record, is_extended)
  for _, share in ipairs(record[4]) do
    local limit = find(share[1])
    if limit and (limit.kind == 'budget' or (is_extended and limit.kind == 'concurrency')) then
      call('ZADD', entries_of(limit), 'XX', now, entry(limit, share[2], lease))
    end
  end
  record[2] = now
  remember(lease, record)
end

local function again(lease, record, requirements)
  if record[1] == 'denied' then return record end
  if has_expired(lease, record) then return {'denied', now, 'lease_expired', 0, {}} end
  if not is_same(record[4], requirements) then return {'denied', now, 'invalid_request', 0, {}} end
  hear(lease, record, false)
  return record
end

-- Returns the denial of a new lease, terminal reasons first; nil if it is granted.
local function refusal(requirements)
  local keys = {
    unknown_limit_key = {}, exceeds_capacity = {}, budget_exhausted = {}, limit_decreasing = {},
    no_capacity = {},
  }
  local wait = 0
  local function add(reason, what) table.insert(keys[reason], what) end
  -- The requested amount, the capacity, the unsettled part of a budget, and its reset.
  local function lack(limit, amount)
    local is_budget = limit.kind == 'budget'
    local anew = is_budget and limit.span > 0 and limit.began + limit.span - now or -1
    local left = math.max(0, target(limit) - (is_budget and limit.used or 0))
    return {limit.key, amount, target(limit), left, anew}
  end
  for _, one in ipairs(requirements) do
    local key, amount = one[1], one[2]
    local limit = find(key)
    if not limit then
      add('unknown_limit_key', key)
    elseif share_of(limit, amount) > target(limit) then
      add('exceeds_capacity', lack(limit, amount))
    elseif limit.kind == 'budget' and amount > target(limit) - limit.used then
      add('budget_exhausted', lack(limit, amount))
    else
      local own = fits(limit, amount) and 0 or until_room(limit, amount)
      own = math.max(own, limit.paused - now)
      if own > 0 then add('no_capacity', key) end
      if limit.pending > 0 then add('limit_decreasing', key) end
      wait = math.max(wait, own)
    end
  end
  for _, reason in ipairs({'unknown_limit_key', 'exceeds_capacity', 'budget_exhausted'}) do
    if #keys[reason] > 0 then return {'denied', now, reason, 0, keys[reason]} end
  end
  for _, reason in ipairs({'limit_decreasing', 'no_capacity'}) do
    if #keys[reason] > 0 then
      for _, key in ipairs(keys[reason]) do
        local limit = limits[key]
        limit.streak = limit.streak + 1
        limit.wanted = math.max(limit.wanted, now + wait)
      end
      return {'denied', now, reason, wait, keys[reason]}
    end
  end
end

local function reserve(lease, requirements)
  local record = recall(lease)
  if record then return again(lease, record, requirements) end
  local denied = refusal(requirements)
  if denied then return remember(lease, denied) end
  for _, one in ipairs(requirements) do
    local limit, amount = limits[one[1]], one[2]
    limit.streak = 0
    -- An id may be used again when its record is dropped; an entry that is left of it counts once.
    if call('ZADD', entries_of(limit), now, entry(limit, amount, lease)) == 1 then
      local field = limit.kind == 'budget' and 'outstanding' or 'used'
      limit[field] = limit[field] + share_of(limit, amount)
    end
  end
  return remember(lease, {'granted', now, now, requirements})
end

-- Records the actual usage of a window's share: usage beyond it counts as far as there is room.
local function settle_window(limit, lease, amount, actual)
  local excess = actual - amount
  if excess == 0 or (excess > 0 and limit.overage == 'deny') then return end
  local old = entry(limit, amount, lease)
  local at = call('ZSCORE', entries_of(limit), old)
  local room = at and math.max(0, limit.capacity - limit.used) or 0
  local change = math.min(excess, room)
  if excess > 0 then limit.debt = math.min(MOST, limit.debt + excess - change) end
  if not at then return end
  call('ZREM', entries_of(limit), old)
  if amount + change > 0 then call('ZADD', entries_of(limit), at, entry(limit, amount + change, lease)) end
  limit.used = limit.used + change
  freed(limit)
end

local function settle(limit, lease, amount, actual)
  if limit.kind == 'rolling' then
    if actual then settle_window(limit, lease, amount, actual) end
  elseif call('ZREM', entries_of(limit), entry(limit, amount, lease)) == 1 then
    if limit.kind == 'concurrency' then
      limit.used = limit.used - 1
    else
      if not actual or (actual > amount and limit.overage == 'deny') then actual = amount end
      limit.outstanding = limit.outstanding - amount
      limit.used = math.min(MOST, limit.used + actual)
    end
    freed(limit)
  end
end

local function complete(lease, actuals)
  local record = recall(lease)
  if not record or record[1] == 'denied' then return end
  local used = {}
  for _, actual in ipairs(actuals) do used[actual[1]] = actual[2] end
  for _, share in ipairs(record[4]) do
    local limit = find(share[1])
    if limit then settle(limit, lease, share[2], used[share[1]]) end
  end
  remember(lease, {'denied', now, 'lease_completed', 0, {}})
end

local function extend(lease)
  local record = recall(lease)
  if not record or record[1] == 'denied' or has_expired(lease, record) then return 0 end
  hear(lease, record, true)
  return 1
end

-- Definitions -----------------------------------------------------------------------------------------

local function stand(limit)
  return {
    limit.key, limit.kind, limit.capacity, limit.span, limit.overage, limit.unit, limit.description,
    limit.pending, limit.used, limit.outstanding, limit.debt,
    limit.paused > now and limit.paused or 0, limit.began, math.max(0, limit.paused - now),
  }
end

local function retain()
  local longest = LEAST_RETENTION
  for _, key in ipairs(call('SMEMBERS', ns .. ':keys')) do
    local limit = find(key)  -- what is due by now is due under the definition until now
    if limit.kind ~= 'budget' then longest = math.max(longest, limit.span) end
  end
  -- A longer retention restores nothing that was due.
  forgotten = math.max(forgotten, now - retention)
  call('HSET', ns, 'retention', whole(longest), 'forgotten', whole(forgotten))
end

local function define(key, kind, capacity, span, overage, unit, description)
  local limit = find(key)
  if limit and limit.kind ~= kind then return {0, limit.kind} end
  if not limit then
    limit = {
      key = key, kind = kind, capacity = capacity, pending = 0, used = 0, outstanding = 0, debt = 0,
      paused = 0, streak = 0, wanted = 0, began = now,
    }
    limits[key] = limit
  end
  -- A new period starts now, and settled amounts count in it.
  if span ~= limit.span then limit.began = now end
  limit.span, limit.overage, limit.unit, limit.description = span, overage, unit, description
  roomy[key] = capacity >= limit.capacity
  if capacity >= limit.capacity then
    limit.capacity, limit.pending = capacity, 0
  else
    limit.pending = capacity
    decrease(limit)
  end
  call('SADD', ns .. ':keys', key)
  refresh(limit)
  retain()
  return {1, stand(limit)}
end

-- With `at_least`, a longer pause stays as it is.
local function pause(key, microseconds, at_least)
  local limit = find(key)
  if not limit then return {0, ''} end
  local before = at_least and limit.paused or 0
  limit.paused = math.max(before, now + microseconds)
  roomy[key] = microseconds <= 0
  return {1, stand(limit)}
end

-- Leases with a share of it keep their other shares. Clients that wait for it are notified of its removal.
local function remove(key)
  local limit = find(key)
  if not limit then return 0 end
  call('DEL', ns .. ':k:' .. key, entries_of(limit))
  call('SREM', ns .. ':keys', key)
  limits[key], packed[key] = false, false
  if limit.wanted > now then call('PUBLISH', ns .. ':room', cjson.encode({key})) end
  retain()
  return 1
end

-- Operations ------------------------------------------------------------------------------------------

local replies = {}
if operation == 'reserve' then
  for i, item in ipairs(items) do
    local record = reserve(item[1], item[2])
    replies[i] = record[1] == 'granted' and {1, record[3]} or {0, record[3], record[4], record[5]}
  end
elseif operation == 'complete' then
  for _, item in ipairs(items) do complete(item[1], item[2]) end
elseif operation == 'extend' then
  for i, item in ipairs(items) do replies[i] = extend(item) end
elseif operation == 'states' then
  for i, key in ipairs(call('SMEMBERS', ns .. ':keys')) do replies[i] = stand(find(key)) end
elseif operation == 'define' then
  replies = define(unpack(items))
elseif operation == 'pause' then
  replies = pause(unpack(items))
elseif operation == 'remove' then
  replies = remove(items[1])
else
  return redis.error_reply('ERR unknown operation ' .. operation)
end
save()
return replies
