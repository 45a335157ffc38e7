-- Keeps tenants apart in the database itself; how a transaction gets its tenant is told in stores/tenants.py.
-- Forced, so that the owner is bound like everybody but a superuser: once a transaction has a tenant it sees nothing of
-- another one, and without one the owner sees all, as its workers and sweeps must. Which roles may do what beside the
-- owner is said in roles.postgresql.sql.
create function exports_no_tenant() returns text language plpgsql stable as $$ begin
    raise insufficient_privilege using message = 'no tenant is set, and this role acts for one tenant at a time; '
        'workers, sweeps and the operator connect as haulage_worker';
end $$;
alter table exports enable row level security, force row level security;
alter table idempotency_keys enable row level security, force row level security;
create policy exports_all_or_one on exports to current_user
    using (tenant = coalesce(nullif(current_setting('haulage.tenant', true), ''), tenant));
create policy idempotency_keys_all_or_one on idempotency_keys to current_user
    using (tenant = coalesce(nullif(current_setting('haulage.tenant', true), ''), tenant));

-- What a tenant may know of all the others is a number. They put its name aside while they count: the owner is bound by
-- it too, and only a superuser may say so with the function. The order is that of stores/queue.py.
create function exports_place(run text) returns bigint language plpgsql security definer as $$
declare
    whose constant text := coalesce(current_setting('haulage.tenant', true), '');
    place bigint;
begin
    perform set_config('haulage.tenant', '', true);
    with busy as (select tenant, count(*) as running from exports where state = 'running' and slot > 0 group by tenant),
    queue as (
        select q.id, q.requested_at, coalesce(busy.running, 0)
            + row_number() over (partition by q.tenant order by q.requested_at, q.id) as load
        from exports q left join busy on busy.tenant = q.tenant where q.state = 'queued'
    )
    select count(*) into place from queue join queue mine on mine.id = run
    where (queue.load, queue.requested_at, queue.id) <= (mine.load, mine.requested_at, mine.id);
    perform set_config('haulage.tenant', whose, true);
    return place;
end $$;
create function exports_progress() returns bigint language plpgsql security definer as $$
declare
    whose constant text := coalesce(current_setting('haulage.tenant', true), '');
    changes bigint;
begin
    perform set_config('haulage.tenant', '', true);
    select coalesce(sum(revision), 0) into changes from exports where state = 'running' and slot > 0;
    perform set_config('haulage.tenant', whose, true);
    return changes;
end $$;
alter function exports_counted() security definer;
revoke execute on function exports_place(text), exports_progress(), exports_counted(), exports_min_worker() from public;
-- Whoever calls them must not choose which tables they mean: one made by the caller in pg_temp would come first.
do $$ declare each text; begin
    foreach each in array array['exports_place(text)', 'exports_progress()', 'exports_counted()', 'exports_no_tenant()',
        'exports_min_worker()']
    loop
        execute format('alter function %s set search_path = %I, pg_temp', each, current_schema());
    end loop;
end $$;
