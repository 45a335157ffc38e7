-- The roles of `haulage migrate up --roles`, and what each may do; docs/operating.md says who connects as which.
-- May be run again: it brings everything to what stands here.
--
--     haulage_runtime    the doors: one tenant a transaction, and nothing without one
--     haulage_worker     the same, and without a tenant all of them: workers, sweeps, the operator
--     haulage_routing    who waits and who runs, and nothing else
do $$
declare
    place constant text := current_schema();
    owner constant text := pg_get_userbyid(relowner) from pg_class where oid = format('%I.exports', place)::regclass;
    called text;
    kind text;
begin
    foreach called in array array['haulage_runtime', 'haulage_worker', 'haulage_routing'] loop
        if not exists (select from pg_roles where rolname = called) then
            begin
                execute format('create role %I login', called);
            exception when insufficient_privilege then
                raise exception '% may make no roles; let one who may run: create role % login; then run this again',
                    current_user, called;
            end;
        end if;
        if exists (select from pg_roles where (rolsuper or rolbypassrls or rolcreaterole or rolname = owner)
            and pg_has_role(called, oid, 'member')) then
            raise exception 'the role % is, or can become, a superuser, the owner of the tables, or one who creates '
                'roles or passes row security by; take that from it, then run this again', called;
        end if;
        if not has_database_privilege(called, current_database(), 'connect') then
            begin
                execute format('grant connect on database %I to %I', current_database(), called);
            exception when insufficient_privilege then null;
            end;
            if not has_database_privilege(called, current_database(), 'connect') then
                raise exception 'the role % may not connect; let the owner of the database run: '
                    'grant connect on database % to %; then run this again', called, current_database(), called;
            end if;
        end if;
        execute format('revoke all on exports, idempotency_keys, sessions, workers, haulage_facts, tenant_gates, '
            'run_pools from %I', called);
        execute format('grant usage on schema %I to %I', place, called);
    end loop;
    if pg_has_role('haulage_worker', 'haulage_runtime', 'member')
        or pg_has_role('haulage_runtime', 'haulage_worker', 'member') then
        raise exception 'one of haulage_runtime and haulage_worker is a member of the other; take that from it, '
            'then run this again';
    end if;

    execute format('alter policy exports_all_or_one on exports to %I, haulage_worker', owner);
    execute format('alter policy idempotency_keys_all_or_one on idempotency_keys to %I, haulage_worker', owner);
    foreach kind in array array['exports', 'idempotency_keys'] loop
        execute format('drop policy if exists %I on %I', kind || '_one', kind);
        execute format('create policy %I on %I to haulage_runtime using '
            '(tenant = coalesce(nullif(current_setting(''haulage.tenant'', true), ''''), exports_no_tenant()))',
            kind || '_one', kind);
    end loop;
end $$;
drop policy if exists exports_routing on exports;
create policy exports_routing on exports for select to haulage_routing using (state in ('queued', 'running'));
grant select (tenant, id, state, requested_at) on exports to haulage_routing;

grant select, insert, update on exports to haulage_runtime, haulage_worker;
grant delete on exports to haulage_worker;
grant select, insert, delete on idempotency_keys to haulage_runtime, haulage_worker;
grant select, insert, delete on sessions to haulage_runtime, haulage_worker;
grant select on workers to haulage_runtime, haulage_worker;
grant insert, update, delete on workers to haulage_worker;
-- How many wait over all tenants and since when, and no names of them. A worker locks what it claims by, which takes the right to
-- write a column; the figures of the pool, and which workers may claim, are written by triggers alone.
grant select (flow, queued, head_at) on tenant_gates to haulage_runtime;
grant select, update on tenant_gates to haulage_worker;
grant select on run_pools to haulage_runtime, haulage_worker;
grant update (changes) on run_pools to haulage_worker;
grant execute on function exports_place(text), exports_progress() to haulage_runtime, haulage_worker;

-- Every door locks the row of admission, and `doctor` writes one of its own; which workers may claim says the owner.
grant select, insert, delete on haulage_facts to haulage_runtime, haulage_worker;
grant update (value) on haulage_facts to haulage_runtime, haulage_worker;
alter table haulage_facts enable row level security;
drop policy if exists haulage_facts_read on haulage_facts;
drop policy if exists haulage_facts_locked on haulage_facts;
drop policy if exists haulage_facts_tried on haulage_facts;
drop policy if exists haulage_facts_tidied on haulage_facts;
create policy haulage_facts_read on haulage_facts for select to haulage_runtime, haulage_worker using (true);
create policy haulage_facts_locked on haulage_facts for update to haulage_runtime, haulage_worker
    using (name = 'admission') with check (name = 'admission');
create policy haulage_facts_tried on haulage_facts for insert to haulage_runtime, haulage_worker
    with check (name = 'check');
create policy haulage_facts_tidied on haulage_facts for delete to haulage_runtime, haulage_worker
    using (name = 'check');
