-- TATP. Rows are bytes, as in the other databases; the first byte of a facility says whether it is active.
CREATE TABLE subscriber (id int8 PRIMARY KEY, data bytea NOT NULL) WITH (fillfactor = 50);
CREATE TABLE subscriber_by_number (id int8 PRIMARY KEY, subscriber int8 NOT NULL);
CREATE TABLE access_info (id int8 PRIMARY KEY, data bytea NOT NULL);
CREATE TABLE special_facility (id int8 PRIMARY KEY, data bytea NOT NULL) WITH (fillfactor = 90);
CREATE TABLE call_forwarding (id int8 PRIMARY KEY, data bytea NOT NULL) WITH (fillfactor = 90);

CREATE FUNCTION update_subscriber(s int8, facility int8, subscriber_data bytea, facility_data bytea) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE special_facility SET data = facility_data WHERE id = facility;
    IF NOT FOUND THEN RETURN false; END IF;
    UPDATE subscriber SET data = subscriber_data WHERE id = s;
    RETURN true;
END $$;

CREATE FUNCTION update_location(number int8, new_data bytea) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    UPDATE subscriber SET data = new_data
        WHERE id = (SELECT by_number.subscriber FROM subscriber_by_number by_number WHERE by_number.id = number);
    RETURN FOUND;
END $$;

CREATE FUNCTION insert_forwarding(number int8, facility int8, place int8, new_data bytea) RETURNS bool
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM subscriber_by_number by_number WHERE by_number.id = number;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM 1 FROM special_facility WHERE id = facility AND get_byte(data, 0) < 85;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO call_forwarding VALUES (place, new_data) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;

CREATE FUNCTION delete_forwarding(number int8, place int8) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM subscriber_by_number by_number WHERE by_number.id = number;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM call_forwarding WHERE id = place;
    RETURN FOUND;
END $$;
