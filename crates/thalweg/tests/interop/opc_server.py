"""An OPC UA server by asyncua: a plant whose line has a speed, a name and its temperatures.

Writes the port that it was given to the file PORT. The user "admin" may make nodes. With a
certificate and its key, in PEM, it signs and encrypts by POLICY too, and wants admin's password.

Usage: opc_server.py PORT [CERTIFICATE KEY POLICY]
"""

import asyncio
import os
import sys

from asyncua import Server, ua
from asyncua.crypto.permission_rules import User, UserRole


class Users:
    def get_user(self, server, username=None, password=None, certificate=None):
        if username is None:
            return User(role=UserRole.User)
        if (username, password) == ("admin", "secret"):
            return User(role=UserRole.Admin)
        return None


async def main():
    server = Server(user_manager=Users())
    await server.init()
    server.set_endpoint("opc.tcp://127.0.0.1:0/plant")
    policies = [ua.SecurityPolicyType.NoSecurity]
    if len(sys.argv) > 2:
        certificate, key, policy = sys.argv[2:]
        await server.set_application_uri("urn:server")
        await server.load_certificate(certificate)
        await server.load_private_key(key, format="pem")
        policies.append(ua.SecurityPolicyType[policy + "_SignAndEncrypt"])
    server.set_security_policy(policies)
    space = await server.register_namespace("urn:plant")
    assert space == 2, space
    plant = await server.nodes.objects.add_folder(space, "plant")
    line = await plant.add_object(ua.NodeId(1001, space), ua.QualifiedName("line", space))
    variables = [
        ("speed", 7, ua.VariantType.Int32),
        ("name", "Linie Süd", ua.VariantType.String),
        ("temperatures", [20.5, 1e-9], ua.VariantType.Double),
    ]
    for name, value, kind in variables:
        node = await line.add_variable(ua.NodeId(name, space), name, value, kind)
        await node.set_writable()
    # More than are told of at once.
    many = await plant.add_object(ua.NodeId(1002, space), ua.QualifiedName("many", space))
    for number in range(1200):
        await many.add_variable(ua.NodeId(5000 + number, space), f"n{number}", number)
    async with server:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(server.bserver.port))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        await asyncio.Event().wait()


asyncio.run(main())
