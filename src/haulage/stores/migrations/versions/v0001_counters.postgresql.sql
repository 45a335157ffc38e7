-- Keeps tenant_gates and run_pools as exports are written; what they are for is told in stores/counters.py.
-- In order: the gate of the tenant, then the pool. The lock of a gate is taken before its next head is looked for:
-- in one statement the look would be as old as the statement, and miss what was added while it waited.
alter table exports set (fillfactor = 75, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);
alter table tenant_gates set (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);
-- No two gates have the same entry, so a full page of them is looked through for such in vain.
alter index tenant_gates_open set (deduplicate_items = off);
alter table run_pools set (fillfactor = 10, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02);
-- The two moves that every run makes come first, with nothing else in them; then all that may be. One trigger looks at
-- them here: each WHEN of a trigger is read anew at every update, and three of them took a fifth of a claim.
-- What comes or goes has no old or no new row, whose state is null.
-- What a claim reads of the pool beside the budget, instead of a table more for each: the slots that nobody holds, and
-- the fact that says which workers may claim.
alter table run_pools add column free_slots int4multirange not null default '{[1,)}', add column min_worker bigint;
create function exports_min_worker() returns trigger language plpgsql set search_path from current as $$ begin
    update run_pools set min_worker = new.value where flow = 'exports';
    return null;
end $$;
create trigger haulage_facts_min_worker after insert or update of value on haulage_facts for each row
when (new.name = 'min_worker') execute function exports_min_worker();
create function exports_counted() returns trigger language plpgsql set search_path from current as $$ begin
    -- Who claims has locked the gate, so the head that is found in this statement is the head: from the head of before
    -- on, which is the head still where it was another run that was claimed.
    if old.state = 'queued' and new.state = 'running' then
        update tenant_gates set queued = queued - 1, running = running + 1, (head_at, head_id) = (
            select requested_at, id from exports
            where state = 'queued' and (tenant, requested_at) >= (old.tenant, head_at) and tenant <= old.tenant
            order by tenant, requested_at, id limit 1)
        where flow = 'exports' and tenant = old.tenant;
        update run_pools set reserved_bytes = reserved_bytes + coalesce(new.reserved_bytes, 0), changes = changes + 1,
            free_slots = free_slots - int4multirange(int4range(new.slot, new.slot + 1))
        where flow = 'exports';
        return null;
    elsif old.state = 'running' and new.state not in ('queued', 'running') then
        update tenant_gates set running = running - 1 where flow = 'exports' and tenant = old.tenant;
        update run_pools set reserved_bytes = reserved_bytes - coalesce(old.reserved_bytes, 0)
            + coalesce(new.reserved_bytes, 0), stored_bytes = stored_bytes - coalesce(old.stored_bytes, 0)
            + coalesce(new.stored_bytes, 0), changes = changes + 1,
            free_slots = free_slots + int4multirange(int4range(old.slot, old.slot + 1))
        where flow = 'exports';
        return null;
    elsif old.state = new.state and old.stored_bytes is not distinct from new.stored_bytes
        and old.reserved_bytes is not distinct from new.reserved_bytes and old.slot is not distinct from new.slot then
        return null;
    end if;
    declare
        gone_queued constant integer := (tg_op <> 'INSERT' and old.state = 'queued')::integer;
        gone_running constant integer := (tg_op <> 'INSERT' and old.state = 'running')::integer;
        come_queued constant integer := (tg_op <> 'DELETE' and new.state = 'queued')::integer;
        come_running constant integer := (tg_op <> 'DELETE' and new.state = 'running')::integer;
        stored bigint := 0;
        reserved bigint := 0;
        given int4multirange := '{}';
        taken int4multirange := '{}';
        gate tenant_gates;
        head tenant_gates;
    begin
        if come_queued = 1 and gone_queued = 0 then
            insert into tenant_gates as g (flow, tenant, queued, running, head_at, head_id)
            values ('exports', new.tenant, 1, -gone_running, new.requested_at, new.id)
            on conflict (flow, tenant) do update set
                queued = g.queued + 1,
                running = g.running - gone_running,
                head_at = case when g.head_id is null or (new.requested_at, new.id) < (g.head_at, g.head_id)
                    then new.requested_at else g.head_at end,
                head_id = case when g.head_id is null or (new.requested_at, new.id) < (g.head_at, g.head_id)
                    then new.id else g.head_id end;
        elsif gone_queued = 1 and come_queued = 0 then
            select * into gate from tenant_gates where flow = 'exports' and tenant = old.tenant for update;
            head := gate;
            if gate.head_id = old.id then
                head.head_at := null;
                head.head_id := null;
                select requested_at, id into head.head_at, head.head_id from exports
                where state = 'queued' and tenant = old.tenant and (requested_at, id) > (old.requested_at, old.id)
                order by requested_at, id limit 1;
            end if;
            update tenant_gates set queued = gate.queued - 1, running = gate.running + come_running,
                head_at = head.head_at, head_id = head.head_id
            where flow = 'exports' and tenant = old.tenant;
        elsif come_running = 1 and gone_running = 0 then
            insert into tenant_gates as g (flow, tenant, queued, running) values ('exports', new.tenant, 0, 1)
            on conflict (flow, tenant) do update set running = g.running + 1;
        elsif gone_running = 1 and come_running = 0 then
            update tenant_gates set running = running - 1 where flow = 'exports' and tenant = old.tenant;
        end if;
        if tg_op <> 'INSERT' then
            stored := stored - coalesce(old.stored_bytes, 0);
            reserved := reserved - coalesce(old.reserved_bytes, 0);
            if old.slot > 0 then
                given := int4multirange(int4range(old.slot, old.slot + 1));
            end if;
        end if;
        if tg_op <> 'DELETE' then
            stored := stored + coalesce(new.stored_bytes, 0);
            reserved := reserved + coalesce(new.reserved_bytes, 0);
            if new.slot > 0 then
                taken := int4multirange(int4range(new.slot, new.slot + 1));
            end if;
        end if;
        update run_pools set stored_bytes = stored_bytes + stored, reserved_bytes = reserved_bytes + reserved,
            changes = changes + 1, free_slots = free_slots + given - taken
        where flow = 'exports';
        return null;
    end;
end $$;
create trigger exports_counted_insert after insert on exports for each row
when (new.state in ('queued', 'running') or new.stored_bytes is not null or new.reserved_bytes is not null)
execute function exports_counted();
create trigger exports_counted_update after update of state, slot, stored_bytes, reserved_bytes on exports for each row
execute function exports_counted();
create trigger exports_counted_delete after delete on exports for each row
when (old.state in ('queued', 'running') or old.stored_bytes is not null or old.reserved_bytes is not null)
execute function exports_counted();
