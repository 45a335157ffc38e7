-- Keeps tenant_gates and run_pools as exports are written; what they are for is told in stores/counters.py.
-- The same as for PostgreSQL: a trigger is for one kind of change, and calls what they share. Statements are parted
-- by a line of two dashes.
--
create procedure exports_came(in whose varchar(200) character set utf8mb4 collate utf8mb4_nopad_bin, in asked_at bigint, in run varchar(36) character set utf8mb4 collate utf8mb4_nopad_bin, in stopped integer)
modifies sql data
insert into tenant_gates (flow, tenant, queued, running, head_at, head_id)
values ('exports', whose, 1, -stopped, asked_at, run)
on duplicate key update
    queued = queued + 1,
    running = running - stopped,
    head_id = if(head_id is null or (asked_at, run) < (head_at, head_id), run, head_id),
    head_at = if(head_at is null or asked_at < head_at, asked_at, head_at);
--
create procedure exports_went(in whose varchar(200) character set utf8mb4 collate utf8mb4_nopad_bin, in asked_at bigint, in run varchar(36) character set utf8mb4 collate utf8mb4_nopad_bin, in started integer)
modifies sql data
begin
    declare head varchar(36);
    declare next_at bigint;
    declare next_id varchar(36);
    select head_id into head from tenant_gates where flow = 'exports' and tenant = whose for update;
    if head <=> run then
        begin
            declare continue handler for not found begin end;
            -- In two steps, because a comparison of pairs reads all that were asked for at the same instant.
            select requested_at, id into next_at, next_id from exports
            where state = 'queued' and tenant = whose and requested_at = asked_at and id > run order by id limit 1;
            if next_id is null then
                select requested_at, id into next_at, next_id from exports
                where state = 'queued' and tenant = whose and requested_at > asked_at
                order by requested_at, id limit 1;
            end if;
        end;
        update tenant_gates set queued = queued - 1, running = running + started, head_at = next_at, head_id = next_id
        where flow = 'exports' and tenant = whose;
    else
        update tenant_gates set queued = queued - 1, running = running + started
        where flow = 'exports' and tenant = whose;
    end if;
end;
--
create procedure exports_worked(in whose varchar(200) character set utf8mb4 collate utf8mb4_nopad_bin, in difference integer)
modifies sql data
insert into tenant_gates (flow, tenant, queued, running) values ('exports', whose, 0, difference)
on duplicate key update running = running + difference;
--
create procedure exports_took(in stored bigint, in reserved bigint)
modifies sql data
update run_pools set stored_bytes = stored_bytes + stored, reserved_bytes = reserved_bytes + reserved,
    changes = changes + 1
where flow = 'exports';
--
create trigger exports_counted_insert after insert on exports for each row
begin
    if new.state = 'queued' then
        call exports_came(new.tenant, new.requested_at, new.id, 0);
    elseif new.state = 'running' then
        call exports_worked(new.tenant, 1);
    end if;
    if new.state in ('queued', 'running') or new.stored_bytes is not null or new.reserved_bytes is not null then
        call exports_took(coalesce(new.stored_bytes, 0), coalesce(new.reserved_bytes, 0));
    end if;
end;
--
create trigger exports_counted_update after update on exports for each row
begin
    if old.state <> new.state then
        if new.state = 'queued' then
            call exports_came(new.tenant, new.requested_at, new.id, old.state = 'running');
        elseif old.state = 'queued' then
            call exports_went(old.tenant, old.requested_at, old.id, new.state = 'running');
        elseif new.state = 'running' then
            call exports_worked(new.tenant, 1);
        elseif old.state = 'running' then
            call exports_worked(old.tenant, -1);
        end if;
    end if;
    if old.state <> new.state or not (old.stored_bytes <=> new.stored_bytes)
            or not (old.reserved_bytes <=> new.reserved_bytes) then
        call exports_took(
            coalesce(new.stored_bytes, 0) - coalesce(old.stored_bytes, 0),
            coalesce(new.reserved_bytes, 0) - coalesce(old.reserved_bytes, 0));
    end if;
end;
--
create trigger exports_counted_delete after delete on exports for each row
begin
    if old.state = 'queued' then
        call exports_went(old.tenant, old.requested_at, old.id, 0);
    elseif old.state = 'running' then
        call exports_worked(old.tenant, -1);
    end if;
    if old.state in ('queued', 'running') or old.stored_bytes is not null or old.reserved_bytes is not null then
        call exports_took(-coalesce(old.stored_bytes, 0), -coalesce(old.reserved_bytes, 0));
    end if;
end;
